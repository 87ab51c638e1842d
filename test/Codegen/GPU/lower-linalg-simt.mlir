// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-lower-linalg-simt))' | FileCheck %s

// Threads share the rows; the column of a thread is the same in all of its rows, whose size is constant. A barrier follows
// each op.
// CHECK-LABEL: func @add_and_double
// CHECK-SAME: attn.family = "simt"
func.func @add_and_double(%a: memref<?x8xf32>, %b: memref<?x8xf32>, %c: memref<?x8xf32>) {
  // CHECK: %[[THREAD:.*]] = llvm.inline_asm
  // CHECK: arith.remui %[[THREAD]], %c8
  // CHECK: %[[ROW:.*]] = arith.divui %[[THREAD]], %c8
  // CHECK: scf.for %{{.*}} = %[[ROW]] to %{{.*}} step %c16
  // CHECK-NOT: remui
  // CHECK:   arith.addf
  // CHECK:   memref.store %{{.*}}, %arg2
  // CHECK: nvvm.barrier0
  linalg.add ins(%a, %b : memref<?x8xf32>, memref<?x8xf32>) outs(%c : memref<?x8xf32>)
  // CHECK: scf.for
  // CHECK: memref.store %{{.*}}, %arg0
  // CHECK-NOT: nvvm.barrier0
  linalg.add ins(%c, %c : memref<?x8xf32>, memref<?x8xf32>) outs(%a : memref<?x8xf32>)
  return
}

// Rows of another constant size: the threads share the elements. The part of a kernel's own buffer has rows of at most
// the size of the buffer, so no position is divided by a number of run time.
// CHECK-LABEL: func @rows_of_a_tile
func.func @rows_of_a_tile(%rows: index, %columns: index, %x: f32, %out: memref<?x?xf32>) {
  %tile = memref.alloc() : memref<32x48xf32>
  %part = memref.subview %tile[0, 0] [%rows, %columns] [1, 1] : memref<32x48xf32> to memref<?x?xf32, strided<[48, 1]>>
  // CHECK: %[[COUNT:.*]] = arith.muli %{{.*}}, %c48{{.*}} : i32
  // CHECK: scf.for %[[ELEMENT:.*]] = %{{.*}} to %[[COUNT]] step %c128
  // CHECK:   %[[COLUMN:.*]] = arith.remui %[[ELEMENT]], %c48
  // CHECK:   arith.divui %[[ELEMENT]], %c48
  // CHECK:   %[[IS_INSIDE:.*]] = arith.cmpi slt, %[[COLUMN]]
  // CHECK:   scf.if %[[IS_INSIDE]] {
  // CHECK:     memref.store
  linalg.fill ins(%x : f32) outs(%part : memref<?x?xf32, strided<[48, 1]>>)
  // Rows of unknown size are divided.
  // CHECK: scf.for %[[ELEMENT:.*]] =
  // CHECK:   arith.remui %[[ELEMENT]], %[[COLUMNS:.*]] : i32
  // CHECK-NOT: scf.if
  // CHECK:   memref.store
  linalg.fill ins(%x : f32) outs(%out : memref<?x?xf32>)
  return
}

// A reduction is a sequential loop of each thread; linalg.index is the position in the op.
// CHECK-LABEL: func @weight_by_position
func.func @weight_by_position(%a: memref<?x?xf32>, %sum: memref<?xf32>) {
  // CHECK: scf.for %[[ROW:.*]] =
  // CHECK:   %[[START:.*]] = memref.load %arg1
  // CHECK:   scf.for %[[COLUMN:.*]] = %{{.*}} iter_args(%[[RUNNING:.*]] = %[[START]])
  // CHECK:     arith.addf %[[RUNNING]]
  // CHECK:   memref.store
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                  iterator_types = ["parallel", "reduction"]}
      ins(%a : memref<?x?xf32>) outs(%sum : memref<?xf32>) {
    ^bb0(%x: f32, %s: f32):
      %j = linalg.index 1 : index
      %j32 = arith.index_cast %j : index to i32
      %w = arith.sitofp %j32 : i32 to f32
      %y = arith.mulf %x, %w : f32
      %z = arith.addf %s, %y : f32
      linalg.yield %z : f32
  }
  return
}

// EXAMPLE
// A memref.store of a task is executed by one thread, between barriers.
// CHECK-LABEL: func @store_scalar
func.func @store_scalar(%a: memref<4xf32>, %x: f32) {
  // CHECK: nvvm.barrier0
  // CHECK: %[[IS_FIRST:.*]] = arith.cmpi eq, %{{.*}}, %c0{{.*}} : i32
  // CHECK: scf.if %[[IS_FIRST]] {
  // CHECK-NEXT: memref.store
  // CHECK: nvvm.barrier0
  %c0 = arith.constant 0 : index
  memref.store %x, %a[%c0] : memref<4xf32>
  return
}
