// RUN: saccade-opt %s --attn-lower-packed-matmul=target=v3 -canonicalize -cse | FileCheck %s
// RUN: saccade-opt %s --attn-lower-packed-matmul=target=v4 -canonicalize -cse | FileCheck %s --check-prefix=V4

// The panels of 256 columns are multiplied in blocks of equal size that fit L2: 768 k-packs of 13 panels would, so there are two
// blocks of 8. A part of 128 k-packs of a panel prefetches a line of each row of the next group, and 4 k-packs of the next block,
// which 32 groups of rows cover. After the last block these are panels of the next work item, if there is one.
// CHECK-LABEL: @panels_of_the_next_item
// V4-LABEL: @panels_of_the_next_item
// V4-NOT: locality<2>
func.func private @panels_of_the_next_item(%x: memref<192x768xf32, strided<[768, 1]>>, %p: memref<?x768x16xf32>, %y: memref<192x?xf32, strided<[?, 1]>>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  // CHECK: scf.for %[[ITEM:.*]] = %{{.*}} to %[[ITEMS:.*]] step %c1
  // CHECK:   %[[NEXT:.*]] = arith.addi %[[ITEM]], %c1
  // CHECK:   arith.cmpi slt, %[[NEXT]], %[[ITEMS]]
  // CHECK:   %[[PANELS:.*]] = memref.subview
  // CHECK:   scf.for %[[FIRST:.*]] = %c0 to %c16 step %c8
  // CHECK:     %[[ISLAST:.*]] = arith.cmpi eq, %{{.*}}, %c16
  // CHECK:     scf.for {{.*}} step %c6
  // CHECK:       scf.for {{.*}} step %c128
  // CHECK-COUNT-6: memref.prefetch %arg0
  // CHECK:         scf.if %[[ISLAST]]
  // CHECK:           %[[LINES:.*]] = memref.subview %[[PANELS]][0, %{{.*}}, 0] [1, 4, 16]
  // CHECK-COUNT-4:   memref.prefetch %[[LINES]][%c0, {{.*}}locality<2>
  // CHECK:         } else {
  // CHECK-COUNT-4:   memref.prefetch {{.*}}locality<2>
  scf.for %i = %begin to %end step %c1 {
    %first = arith.muli %i, %c16 : index
    %column = arith.muli %first, %c16 : index
    %panels = memref.subview %p[%first, 0, 0] [16, 768, 16] [1, 1, 1] : memref<?x768x16xf32> to memref<16x768x16xf32, strided<[12288, 16, 1], offset: ?>>
    %r = memref.subview %y[0, %column] [192, 256] [1, 1] : memref<192x?xf32, strided<[?, 1]>> to memref<192x256xf32, strided<[?, 1], offset: ?>>
    attn.packed_matmul %x, %panels into %r form(multiply_add) : memref<192x768xf32, strided<[768, 1]>>, memref<16x768x16xf32, strided<[12288, 16, 1], offset: ?>> into memref<192x256xf32, strided<[?, 1], offset: ?>>
  }
  return
}

// Blocks of a copied LHS have 256 k-packs. A step prefetches a line of each of six rows of the next group, and 8 k-packs of its
// panel in the next block, without a loop.
// CHECK-LABEL: @k_packs_of_the_next_block
// V4-LABEL: @k_packs_of_the_next_block
// V4: scf.for {{.*}} step %c512
func.func @k_packs_of_the_next_block(%x: memref<192x1024xf32, strided<[?, 1]>>, %p: memref<16x1024x16xf32>, %y: memref<192x256xf32>) {
  // CHECK: scf.for %[[K:.*]] = %c0 to %c1024 step %c256
  // CHECK:   %[[NEXT:.*]] = arith.addi %[[K]], %{{.*}} : index
  // CHECK-COUNT-6: memref.prefetch %arg0
  // CHECK: %[[LINES:.*]] = memref.subview %arg1[%{{.*}}, %{{.*}}, 0] [1, 8, 16]
  // CHECK-COUNT-8: memref.prefetch %[[LINES]][
  attn.packed_matmul %x, %p into %y form(multiply_add) blocked : memref<192x1024xf32, strided<[?, 1]>>, memref<16x1024x16xf32> into memref<192x256xf32>
  return
}

// Rows with static strides are read in place. They are prefetched as those of an LHS that is copied.
// CHECK-LABEL: @rows_in_place
// V4-LABEL: @rows_in_place
// V4-NOT: memref.prefetch %arg0
func.func @rows_in_place(%x: memref<192x1024xf32>, %p: memref<16x1024x16xf32>, %y: memref<192x256xf32>) {
  // CHECK: scf.for {{.*}} = %c0 to %c1024 step %c256
  // CHECK-COUNT-6: memref.prefetch %arg0
  // CHECK: memref.load %arg0
  attn.packed_matmul %x, %p into %y form(multiply_add) blocked : memref<192x1024xf32>, memref<16x1024x16xf32> into memref<192x256xf32>
  return
}

// The op that reads a block of results from scratch memory also reads and writes matrices in memory at these rows and columns.
// A line of each row of them is prefetched after the results of a panel have been stored, not of scratch memory and not of a
// vector that is read along the rows.
// CHECK-LABEL: @operands_of_the_next_op
// V4-LABEL: @operands_of_the_next_op
func.func @operands_of_the_next_op(%x: memref<192x768xf32>, %p: memref<16x768x16xf32>, %r: memref<?x768xf32>, %b: memref<256xf32>, %y: memref<?x768xf32>, %row: index) {
  // CHECK: %[[BLOCK:.*]] = memref.alloc() : memref<192x256xf32>
  // CHECK: %[[INPUT:.*]] = memref.subview %arg2[%arg5, 0] [192, 256]
  // CHECK: %[[OUTPUT:.*]] = memref.subview %arg4[%arg5, 0] [192, 256]
  // CHECK: scf.for {{.*}} step %c6
  // CHECK: vector.store %{{.*}}, %[[BLOCK]]
  // CHECK-NOT: memref.prefetch %[[BLOCK]]
  // CHECK-COUNT-6: memref.prefetch %[[INPUT]][{{.*}}, read, locality<2>
  // CHECK-NOT: memref.prefetch %arg3
  // CHECK-COUNT-6: memref.prefetch %[[OUTPUT]][{{.*}}, read, locality<2>
  // CHECK: linalg.generic
  %block = memref.alloc() : memref<192x256xf32>
  attn.packed_matmul %x, %p into %block form(multiply_add) : memref<192x768xf32>, memref<16x768x16xf32> into memref<192x256xf32>
  %input = memref.subview %r[%row, 0] [192, 256] [1, 1] : memref<?x768xf32> to memref<192x256xf32, strided<[768, 1], offset: ?>>
  %output = memref.subview %y[%row, 0] [192, 256] [1, 1] : memref<?x768xf32> to memref<192x256xf32, strided<[768, 1], offset: ?>>
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%block, %input, %b : memref<192x256xf32>, memref<192x256xf32, strided<[768, 1], offset: ?>>, memref<256xf32>) outs(%output : memref<192x256xf32, strided<[768, 1], offset: ?>>) {
  ^bb0(%sum: f32, %in: f32, %bias: f32, %out: f32):
    %0 = arith.addf %sum, %bias : f32
    %1 = arith.addf %in, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// The same for a copied LHS, whose last part of a whole group and panel is stored in the result. With 16 lanes a row of a panel has
// two lines.
// CHECK-LABEL: @operands_of_the_next_op_blocked
// V4-LABEL: @operands_of_the_next_op_blocked
func.func @operands_of_the_next_op_blocked(%x: memref<192x1024xf32, strided<[?, 1]>>, %p: memref<16x1024x16xf32>, %y: memref<192x256xf32>) {
  // CHECK: llvm.inline_asm
  // CHECK-COUNT-12: vector.store
  // CHECK-COUNT-6: memref.prefetch %arg2[{{.*}}, read, locality<2>
  // V4: llvm.inline_asm
  // V4-COUNT-24: memref.prefetch %arg2[{{.*}}, read, locality<2>
  %block = memref.alloc() : memref<192x256xf32>
  attn.packed_matmul %x, %p into %block form(multiply_add) blocked : memref<192x1024xf32, strided<[?, 1]>>, memref<16x1024x16xf32> into memref<192x256xf32>
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%block : memref<192x256xf32>) outs(%y : memref<192x256xf32>) {
  ^bb0(%sum: f32, %out: f32):
    %0 = arith.negf %sum : f32
    linalg.yield %0 : f32
  }
  return
}

// A matrix of indices: a line has eight.
// CHECK-LABEL: @indices_of_the_next_op
// CHECK: llvm.inline_asm
// CHECK: memref.prefetch %arg3[{{.*}} : memref<192x256xindex>
func.func @indices_of_the_next_op(%x: memref<192x1024xf32, strided<[?, 1]>>, %p: memref<16x1024x16xf32>, %y: memref<192x256xf32>, %t: memref<192x256xindex>) {
  %block = memref.alloc() : memref<192x256xf32>
  attn.packed_matmul %x, %p into %block form(multiply_add) blocked : memref<192x1024xf32, strided<[?, 1]>>, memref<16x1024x16xf32> into memref<192x256xf32>
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%block, %t : memref<192x256xf32>, memref<192x256xindex>) outs(%y : memref<192x256xf32>) {
  ^bb0(%sum: f32, %i: index, %out: f32):
    %0 = arith.index_cast %i : index to i64
    %1 = arith.sitofp %0 : i64 to f32
    %2 = arith.addf %sum, %1 : f32
    linalg.yield %2 : f32
  }
  return
}
