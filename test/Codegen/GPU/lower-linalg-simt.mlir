// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-lower-linalg-simt))' | FileCheck %s

// The elements are distributed over the threads; a barrier follows each op.
// CHECK-LABEL: func @add_and_double
// CHECK-SAME: attn.family = "simt"
func.func @add_and_double(%a: memref<?x8xf32>, %b: memref<?x8xf32>, %c: memref<?x8xf32>) {
  // CHECK: %[[COUNT:.*]] = arith.muli %{{.*}}, %c8{{.*}} : i32
  // CHECK: %[[THREAD:.*]] = nvvm.read.ptx.sreg.tid.x
  // CHECK: scf.for %[[ELEMENT:.*]] = %[[THREAD]] to %[[COUNT]] step %c128
  // CHECK:   %[[COLUMN:.*]] = arith.remui %[[ELEMENT]], %c8
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
