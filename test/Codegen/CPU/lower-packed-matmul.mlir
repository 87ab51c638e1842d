// RUN: saccade-opt %s --attn-lower-packed-matmul=target=v4-bf16 -canonicalize -cse | FileCheck %s
// RUN: saccade-opt %s --attn-lower-packed-matmul=target=v3 -canonicalize -cse | FileCheck %s --check-prefix=V3

// Parts of 128 k-packs are accumulated in registers, each from 0: the first one is added to the bias, others to the sums of those
// before. No branch in the loop over parts selects the first one. The LHS is not packed.
// CHECK-LABEL: @matmul_in_one_pass
// CHECK-NOT: frame_pointer
// V3-LABEL: @matmul_in_one_pass
// V3-SAME:  frame_pointer = #llvm.framePointerKind<reserved>
func.func @matmul_in_one_pass(%x: memref<?x?xf32, strided<[?, 1], offset: ?>>, %p: memref<?x?x32xf32>, %b: memref<?xf32>, %y: memref<?x?xf32, strided<[?, 1], offset: ?>>) {
  // CHECK: scf.for
  // CHECK:   scf.for
  // CHECK:     vector.store %{{.*}}, %[[BIAS:.*]][%c16] : memref<32xf32>, vector<16xf32>
  // CHECK:     %[[SEVERAL:.*]] = arith.cmpi sgt, %[[LAST:.*]], %c0
  // CHECK:     scf.if %[[SEVERAL]] {
  // CHECK:       scf.for {{.*}} iter_args(%{{.*}} = %[[ZERO:.*]], %{{.*}} = %[[ZERO]]
  // CHECK:         vector.load {{.*}} : memref<?x?x32xf32>, vector<16xf32>
  // CHECK:         memref.load {{.*}} : memref<?x?xf32, strided<[?, 1], offset: ?>>
  // CHECK-COUNT-24: vector.fma
  // CHECK-COUNT-2: vector.load %[[BIAS]]
  // CHECK-COUNT-24: vector.store %{{.*}}, %[[SUMS:.*]][%{{.*}} : memref<12x32xf32>
  // CHECK:     scf.for %{{.*}} = %c128 to %[[LAST]] step %c128 {
  // CHECK:       scf.for {{.*}} iter_args(%{{.*}} = %[[ZERO]], %{{.*}} = %[[ZERO]]
  // CHECK-COUNT-24: vector.fma
  // CHECK-NOT:   scf.if
  // CHECK-COUNT-24: vector.load %[[SUMS]]
  // CHECK-COUNT-24: vector.store %{{.*}}, %[[SUMS]]
  // CHECK:     scf.for {{.*}} iter_args(%{{.*}} = %[[ZERO]], %{{.*}} = %[[ZERO]]
  // CHECK:     vector.load %[[SUMS]]
  // CHECK:     vector.store {{.*}} : memref<?x?xf32, strided<[?, 1], offset: ?>>, vector<16xf32>
  // V3-COUNT-12: vector.fma {{.*}} : vector<8xf32>
  attn.packed_matmul %x, %p bias(%b) into %y form(multiply_add) : memref<?x?xf32, strided<[?, 1], offset: ?>>, memref<?x?x32xf32>, memref<?xf32> into memref<?x?xf32, strided<[?, 1], offset: ?>>
  return
}

// CHECK-LABEL: @pairs_are_read_as_they_are
func.func @pairs_are_read_as_they_are(%x: memref<?x?xbf16, strided<[?, 1], offset: ?>>, %p: memref<?x?x32xf32>, %y: memref<?x?xbf16, strided<[?, 1], offset: ?>>) {
  // CHECK-NOT: vector.fma
  // CHECK: vector.load {{.*}} : memref<?x?xbf16, strided<[?, 1], offset: ?>>, vector<2xbf16>
  // CHECK: x86vector.avx512.dot
  // CHECK: arith.truncf {{.*}} : vector<16xf32> to vector<16xbf16>
  attn.packed_matmul %x, %p into %y form(pairs) : memref<?x?xbf16, strided<[?, 1], offset: ?>>, memref<?x?x32xf32> into memref<?x?xbf16, strided<[?, 1], offset: ?>>
  return
}

// A group of LHS rows is copied with a padding of one cache line, and accumulators are kept in scratch between parts of the sums.
// The first part starts from the bias, and in whole groups and panels the last one is stored in the result.
// CHECK-LABEL: @blocked_matmul
// V3-LABEL: @blocked_matmul
func.func @blocked_matmul(%x: memref<?x?xf32, strided<[?, 1], offset: ?>>, %p: memref<?x?x32xf32>, %b: memref<?xf32>, %y: memref<?x?xf32, strided<[?, 1], offset: ?>>) {
  // CHECK-DAG: %[[TILE:.*]] = memref.alloc() {{.*}} : memref<192x256xf32>
  // CHECK-DAG: %[[GROUP:.*]] = memref.alloc() {{.*}} : memref<12x528xf32>
  // CHECK-DAG: %[[BIAS:.*]] = memref.alloc() {{.*}} : memref<256xf32>
  // CHECK:     memref.store %{{.*}}, %[[BIAS]]
  // CHECK:     scf.for {{.*}} step %c512
  // CHECK:       vector.store %{{.*}}, %[[GROUP]]
  // CHECK:       scf.for {{.*}} step %c128 {
  // CHECK:         scf.for {{.*}} iter_args
  // CHECK:           vector.load {{.*}} : memref<?x?x32xf32>, vector<16xf32>
  // CHECK:           memref.load %[[GROUP]]
  // CHECK-COUNT-24:  vector.fma
  // CHECK:         scf.if
  // CHECK-COUNT-2:   vector.load %[[BIAS]]
  // CHECK:         } else {
  // CHECK:           %[[SUMS:.*]] = memref.subview %[[TILE]]
  // CHECK-COUNT-24:  vector.load %[[SUMS]][%c{{.*}}, %c{{.*}}]
  // CHECK:         scf.if
  // CHECK:           llvm.inline_asm
  // CHECK:           %[[RESULT:.*]] = memref.subview %arg3
  // CHECK-COUNT-24:  vector.store {{.*}}, %[[RESULT]][%c{{.*}}, %c{{.*}}]
  // CHECK:         } else {
  // CHECK-COUNT-24:  vector.store %{{.*}}, %[[SUMS]]
  // V3-COUNT-12: vector.fma {{.*}} : vector<8xf32>
  attn.packed_matmul %x, %p bias(%b) into %y form(multiply_add) blocked : memref<?x?xf32, strided<[?, 1], offset: ?>>, memref<?x?x32xf32>, memref<?xf32> into memref<?x?xf32, strided<[?, 1], offset: ?>>
  return
}

// EXAMPLE
// CHECK-LABEL: @packing_makes_panels
func.func @packing_makes_panels(%w: memref<?x?xf32, strided<[1, ?]>>, %p: memref<?x?x32xf32>) {
  // CHECK: vector.load {{.*}} vector<16xf32>
  // CHECK: vector.store {{.*}} : memref<?x?x32xf32>, vector<16xf32>
  // CHECK-NOT: attn.pack
  attn.pack %w into %p form(multiply_add) : memref<?x?xf32, strided<[1, ?]>>, memref<?x?x32xf32>
  return
}
