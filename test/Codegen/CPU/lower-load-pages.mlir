// RUN: saccade-opt %s --attn-lower-load-pages=target=v4 -canonicalize | FileCheck %s
// RUN: saccade-opt %s --attn-lower-unpacked-accumulate=target=v4 -canonicalize -cse | FileCheck %s --check-prefix=INPLACE

// EXAMPLE
// One page after the other is copied by vectors; a page that is not in the pool is clamped.
// CHECK-LABEL: func.func @pages_are_copied(
// CHECK-SAME:    %[[POOL:.*]]: memref<?x16x64xf32>, %[[PAGES:.*]]: memref<?xi32>, %[[BEGIN:.*]]: index, %[[TILE:.*]]: memref<?x64xf32>)
// CHECK:         scf.for %[[ENTRY:.*]] =
// CHECK:           %[[NUMBER:.*]] = memref.load %[[PAGES]][%[[ENTRY]]]
// CHECK:           %[[INDEX:.*]] = arith.index_cast %[[NUMBER]]
// CHECK:           %[[SMALL:.*]] = arith.minsi %[[INDEX]]
// CHECK:           %[[PAGE:.*]] = arith.maxsi %[[SMALL]]
// CHECK:           scf.for
// CHECK:             %[[ROW:.*]] = vector.load %[[POOL]][%[[PAGE]], %{{.*}}, %{{.*}}] : memref<?x16x64xf32>, vector<16xf32>
// CHECK:             vector.store %[[ROW]], %[[TILE]]
// CHECK-NOT:     attn.load_pages
func.func @pages_are_copied(%pool: memref<?x16x64xf32>, %pages: memref<?xi32>, %begin: index, %tile: memref<?x64xf32>) {
  attn.load_pages %pool[b,s,d], %pages from %begin into(%tile) : (memref<?x16x64xf32>, memref<?xi32>, index, memref<?x64xf32>) -> ()
  return
}

// A step with few rows reads the pages of its keys in place. The values are needed after the step, so they are copied.
// INPLACE-LABEL: func.func @pages_are_read_in_place(
// INPLACE-SAME:    %[[KEYS:.*]]: memref<?x16x64xf32>, %[[VALUES:[a-z0-9]*]]: memref<?x16x64xf32>
// INPLACE-NOT:     attn.load_pages %[[KEYS]]
// INPLACE:         attn.load_pages %[[VALUES]]
// INPLACE:         %[[PLACES:.*]] = memref.alloc() {alignment = 64 : i64} : memref<1024xindex>
// INPLACE:         memref.store %{{.*}}, %[[PLACES]]
// INPLACE:         %[[MATRIX:.*]] = memref.reinterpret_cast %{{.*}} : memref<?x16x64xf32> to memref<?x64xf32, strided<[1, 1], offset: ?>>
// INPLACE:         %[[PLACE:.*]] = memref.load %[[PLACES]]
// INPLACE:         vector.load %[[MATRIX]][%[[PLACE]], %{{.*}}]
func.func @pages_are_read_in_place(%kp: memref<?x16x64xf32>, %vp: memref<?x16x64xf32>, %pages: memref<?xi32>, %begin: index,
    %q: memref<1x64xf32>, %count: index, %acc: memref<4x64xf32>, %max: memref<4xf32>,
    %sum: memref<4xf32>) -> f32 {
  %c0 = arith.constant 0 : index
  %km = memref.alloc() : memref<1024x64xf32>
  %vm = memref.alloc() : memref<1024x64xf32>
  %k = memref.subview %km[0, 0] [%count, 64] [1, 1] : memref<1024x64xf32> to memref<?x64xf32, strided<[64, 1]>>
  %v = memref.subview %vm[0, 0] [%count, 64] [1, 1] : memref<1024x64xf32> to memref<?x64xf32, strided<[64, 1]>>
  attn.load_pages %kp[b,s,d], %pages from %begin into(%k) : (memref<?x16x64xf32>, memref<?xi32>, index, memref<?x64xf32, strided<[64, 1]>>) -> ()
  attn.load_pages %vp[b,s,d], %pages from %begin into(%v) : (memref<?x16x64xf32>, memref<?xi32>, index, memref<?x64xf32, strided<[64, 1]>>) -> ()
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] at(%c0, %c0, %c0, %begin)
      into(%acc, %max, %sum : memref<4x64xf32>, memref<4xf32>, memref<4xf32>)
      {schedule = #attn.schedule<rows = 4, cols = 1024>, unpacked}
      : (memref<1x64xf32>, memref<?x64xf32, strided<[64, 1]>>, memref<?x64xf32, strided<[64, 1]>>)
  %x = memref.load %v[%c0, %c0] : memref<?x64xf32, strided<[64, 1]>>
  return %x : f32
}

// The pool changes before the step, so that the keys are copied where they are loaded. The values are read in place.
// INPLACE-LABEL: func.func @pages_change_before_the_step(
// INPLACE-SAME:    %[[KEYS:.*]]: memref<?x16x64xf32>, %[[VALUES:[a-z0-9]*]]: memref<?x16x64xf32>
// INPLACE:         attn.load_pages %[[KEYS]]
// INPLACE-NOT:     attn.load_pages %[[VALUES]]
// INPLACE:         memref.store %{{.*}}, %[[KEYS]]
// INPLACE-NOT:     attn.load_pages
// INPLACE:         return
func.func @pages_change_before_the_step(%kp: memref<?x16x64xf32>, %vp: memref<?x16x64xf32>, %pages: memref<?xi32>, %begin: index,
    %q: memref<1x64xf32>, %count: index, %x: f32, %acc: memref<4x64xf32>, %max: memref<4xf32>,
    %sum: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %km = memref.alloc() : memref<1024x64xf32>
  %vm = memref.alloc() : memref<1024x64xf32>
  %k = memref.subview %km[0, 0] [%count, 64] [1, 1] : memref<1024x64xf32> to memref<?x64xf32, strided<[64, 1]>>
  %v = memref.subview %vm[0, 0] [%count, 64] [1, 1] : memref<1024x64xf32> to memref<?x64xf32, strided<[64, 1]>>
  attn.load_pages %kp[b,s,d], %pages from %begin into(%k) : (memref<?x16x64xf32>, memref<?xi32>, index, memref<?x64xf32, strided<[64, 1]>>) -> ()
  memref.store %x, %kp[%c0, %c0, %c0] : memref<?x16x64xf32>
  attn.load_pages %vp[b,s,d], %pages from %begin into(%v) : (memref<?x16x64xf32>, memref<?xi32>, index, memref<?x64xf32, strided<[64, 1]>>) -> ()
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] at(%c0, %c0, %c0, %begin)
      into(%acc, %max, %sum : memref<4x64xf32>, memref<4xf32>, memref<4xf32>)
      {schedule = #attn.schedule<rows = 4, cols = 1024>, unpacked}
      : (memref<1x64xf32>, memref<?x64xf32, strided<[64, 1]>>, memref<?x64xf32, strided<[64, 1]>>)
  return
}
