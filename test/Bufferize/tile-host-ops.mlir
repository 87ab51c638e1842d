// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-tile-host-ops))' | FileCheck %s

// A copy outside of tasks is tiled along its last dimension.
// CHECK-LABEL: func @copies
func.func @copies(%a: memref<?x5000xf32>, %b: memref<?x5000xf32>) {
  // CHECK: scf.forall (%[[ROW:.*]], %[[COLUMN:.*]]) = (0, 0) to (%{{.*}}, 5000) step (1, 4096)
  // CHECK: linalg.copy ins(%{{.*}} : memref<1x?xf32, {{.*}}>)
  linalg.copy ins(%a : memref<?x5000xf32>) outs(%b : memref<?x5000xf32>)
  return
}

// EXAMPLE
// An op without parallel dimensions becomes one task.
// CHECK-LABEL: func @sums_up
func.func @sums_up(%a: memref<?xf32>, %sum: memref<f32>) {
  // CHECK: scf.forall (%{{.*}}) in (1)
  // CHECK-NEXT: linalg.reduce
  linalg.reduce ins(%a : memref<?xf32>) outs(%sum : memref<f32>) dimensions = [0]
    (%x: f32, %y: f32) {
      %z = arith.addf %x, %y : f32
      linalg.yield %z : f32
    }
  return
}

// An op in a task is not changed.
// CHECK-LABEL: func @is_a_task
func.func @is_a_task(%a: memref<4xf32>, %b: memref<4xf32>) {
  // CHECK: scf.forall
  // CHECK-NOT: scf.forall
  scf.forall (%i) in (1) {
    linalg.copy ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)
  }
  return
}
