// RUN: saccade-opt %s --attn-lower-packed-matmul=target=aarch64-bf16 -canonicalize -cse | FileCheck %s

// Two k-packs of a column are side by side in panels, and those of two rows of the LHS in the copy of a group, which ends at
// a whole block. A part of 64 blocks has 128 k-packs.
// CHECK-LABEL: @products_of_blocks
func.func @products_of_blocks(%x: memref<?x?xbf16, strided<[?, 1], offset: ?>>, %w: memref<?x?xbf16, strided<[?, 1]>>, %p: memref<?x?x16xf32>, %y: memref<?x?xf32, strided<[?, 1], offset: ?>>) {
  // CHECK:     vector.shuffle %{{.*}}, %{{.*}} [0, 2] : vector<2xf64>, vector<2xf64>
  // CHECK:     vector.store %{{.*}} : memref<?x?x16xf32>, vector<4xf32>
  // CHECK-DAG: %[[TILE:.*]] = memref.alloc() {{.*}} : memref<192x256xf32>
  // CHECK-DAG: %[[GROUP:.*]] = memref.alloc() {{.*}} : memref<6x1040xf32>
  // CHECK:     scf.for {{.*}} step %c256
  // CHECK:       vector.store %{{.*}}, %[[GROUP]]{{.*}} vector<2xf32>
  // CHECK:       memref.store %cst{{.*}}, %[[GROUP]]
  // CHECK:       scf.for {{.*}} step %c64 {
  // CHECK:       scf.for {{.*}} iter_args
  // CHECK-COUNT-4: vector.load {{.*}} : memref<?x?x16xf32>, vector<4xf32>
  // CHECK:         vector.load %[[GROUP]]{{.*}} vector<4xf32>
  // CHECK-COUNT-24: llvm.aarch64.neon.bfmmla
  // CHECK:         %[[SUMS:.*]] = memref.subview %[[TILE]]
  // CHECK-COUNT-24: vector.load %[[SUMS]]
  attn.pack %w into %p form(blocks) : memref<?x?xbf16, strided<[?, 1]>>, memref<?x?x16xf32>
  attn.packed_matmul %x, %p into %y form(blocks) blocked : memref<?x?xbf16, strided<[?, 1], offset: ?>>, memref<?x?x16xf32> into memref<?x?xf32, strided<[?, 1], offset: ?>>
  return
}
