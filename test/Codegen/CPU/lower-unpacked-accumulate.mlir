// RUN: saccade-opt %s --attn-lower-unpacked-accumulate=target=v4 -canonicalize -cse | FileCheck %s
// RUN: saccade-opt %s --attn-lower-unpacked-accumulate=target=v4-bf16 -canonicalize -cse | FileCheck %s --check-prefix=PAIRS

#tile = strided<[?, ?], offset: ?>
#unit = strided<[?, 1], offset: ?>
#heads = strided<[?, ?, ?], offset: ?>

// Blocks of four keys and four rows have sixteen scores, which become the lanes of one register. Keys and values are read
// without packing; only queries are packed.
// CHECK-LABEL: @keys_and_values_are_not_packed
// CHECK-SAME: %{{[^:]*}}: memref<{{[^,]*}}, strided<[?, ?, ?], offset: ?>>, %[[K:[^:]*]]: memref<{{[^,]*}}, strided<[?, 1], offset: ?>>, %[[V:[^:]*]]: memref<{{[^,]*}}, strided<[?, 1], offset: ?>>, %{{[^:]*}}: index, %[[ACC:[^:]*]]: memref<
func.func @keys_and_values_are_not_packed(%q: memref<4x?x64xf32, #heads>, %k: memref<?x64xf32, #unit>, %v: memref<?x64xf32, #unit>,
    %at: index, %acc: memref<?x64xf32, #unit>, %max: memref<?xf32>, %sum: memref<?xf32>) {
  // CHECK-NOT: memref.alloc() {{.*}} : memref<1024x64xf32>
  // Each line of four later keys is prefetched once. The four keys are two neighbours in each half of the keys.
  // CHECK: %[[HALF:.*]] = arith.muli %{{.*}}, %c2 : index
  // CHECK: scf.for %[[PLACE:.*]] = %c0 to %[[HALF]] step %c2
  // CHECK: arith.addi %[[PLACE]], %[[HALF]] : index
  // CHECK-COUNT-16: memref.prefetch %[[K]]
  // CHECK-COUNT-4: vector.load %[[K]]
  // CHECK: vector.fma
  // CHECK-COUNT-30: vector.shuffle
  // CHECK-COUNT-8: vector.store %{{.*}} vector<2xf32>
  // CHECK-NOT: memref.prefetch %[[K]]
  // CHECK-NOT: math.exp
  // Blocks of sixteen keys are accumulated from 0 and added to the sums of the tile, which are then added to the scaled state.
  // CHECK: vector.store %{{.*}}, %[[SUMS:.*]][%{{.*}}] : memref<12x64xf32>, vector<16xf32>
  // CHECK-COUNT-64: memref.prefetch %[[V]]
  // CHECK-NOT: memref.prefetch %[[V]]
  // CHECK: scf.for {{.*}} iter_args(%{{.*}} = %[[ZERO:cst[_0-9]*]], %{{.*}} = %[[ZERO]],
  // CHECK: vector.load %[[V]]
  // CHECK: %[[BLOCK:.*]] = memref.subview %[[SUMS]]
  // CHECK: vector.load %[[BLOCK]]
  // CHECK-NEXT: arith.addf
  // CHECK: vector.store %{{.*}}, %[[BLOCK]]
  // CHECK: %[[TILE:.*]] = vector.load %[[SUMS]][%{{.*}}, %c0]
  // CHECK: %[[OLD:.*]] = vector.load %[[ACC]]
  // CHECK: %[[NEW:.*]] = vector.fma %[[OLD]], %{{.*}}, %[[TILE]]
  // CHECK: vector.store %[[NEW]], %[[ACC]]
  // CHECK-NOT: attn.accumulate
  attn.accumulate %q[h,s,d], %k[s,d], %v[s,d] at(%at, %at, %at, %at) into(%acc, %max, %sum : memref<?x64xf32, #unit>, memref<?xf32>, memref<?xf32>)
      {unpacked, schedule = #attn.schedule<rows = 12, cols = 1024>} : (memref<4x?x64xf32, #heads>, memref<?x64xf32, #unit>, memref<?x64xf32, #unit>)
  return
}

// If the elements of a row are not contiguous at run time, the tile is copied.
// CHECK-LABEL: @other_strides_are_copied
func.func @other_strides_are_copied(%q: memref<?x64xf32, #tile>, %k: memref<?x64xf32, #tile>, %v: memref<?x64xf32, #tile>,
    %acc: memref<?x64xf32, #unit>, %max: memref<?xf32>, %sum: memref<?xf32>) {
  // CHECK: %[[COPY:.*]] = memref.alloc() {{.*}} : memref<1024x64xf32>
  // CHECK: scf.if %{{.*}} -> (memref<?x64xf32, strided<[?, 1], offset: ?>>)
  // CHECK: } else {
  // CHECK: memref.store %{{.*}}, %[[COPY]]
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] into(%acc, %max, %sum : memref<?x64xf32, #unit>, memref<?xf32>, memref<?xf32>)
      {unpacked, schedule = #attn.schedule<rows = 12, cols = 1024>} : (memref<?x64xf32, #tile>, memref<?x64xf32, #tile>, memref<?x64xf32, #tile>)
  return
}

// EXAMPLE
// Pairs of bf16: keys are read without packing, two rows of values are interleaved. The end of an odd head is masked.
// PAIRS-LABEL: @pairs_are_not_packed
// PAIRS-SAME: %{{[^:]*}}: memref<{{[^,]*}}, strided<[?, ?], offset: ?>>, %[[K:[^:]*]]: memref<{{[^,]*}}, strided<[?, 1], offset: ?>>, %[[V:[^:]*]]: memref<
func.func @pairs_are_not_packed(%q: memref<?x35xbf16, #tile>, %k: memref<?x35xbf16, #unit>, %v: memref<?x24xbf16, #unit>,
    %acc: memref<?x32xf32, #unit>, %max: memref<?xf32>, %sum: memref<?xf32>) {
  // PAIRS: vector.load %[[K]]{{.*}} vector<32xbf16>
  // PAIRS: x86vector.avx512.dot
  // PAIRS: vector.maskedload %[[K]]{{.*}} vector<32xbf16>
  // PAIRS: vector.load %[[V]]{{.*}} vector<16xbf16>
  // PAIRS: vector.interleave
  // PAIRS: vector.maskedload %[[V]]
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] into(%acc, %max, %sum : memref<?x32xf32, #unit>, memref<?xf32>, memref<?xf32>)
      {unpacked, schedule = #attn.schedule<rows = 12, cols = 1024>} : (memref<?x35xbf16, #tile>, memref<?x35xbf16, #unit>, memref<?x24xbf16, #unit>)
  return
}

// Other attn.accumulate ops are not lowered by this pass.
// CHECK-LABEL: @many_rows_are_left
func.func @many_rows_are_left(%q: memref<?x64xf32, #tile>, %k: memref<?x64xf32, #tile>, %v: memref<?x64xf32, #tile>,
    %acc: memref<384x64xf32>, %max: memref<384xf32>, %sum: memref<384xf32>) {
  // CHECK: attn.accumulate
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32, #tile>, memref<?x64xf32, #tile>, memref<?x64xf32, #tile>)
  return
}
