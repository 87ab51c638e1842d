// RUN: saccade-opt %s --attn-import-tosa --split-input-file | FileCheck %s
// The example of the pass; open extents that meet are equal, and an op that upstream does not lower is refused.

// CHECK-LABEL: func.func @exponential
// CHECK: math.exp
// CHECK-NOT: tosa
func.func @exponential(%x: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %y = tosa.exp %x : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @open_extents
// CHECK-NOT: scf.if
// CHECK-NOT: arith.maxui
// CHECK: arith.subf
func.func @open_extents(%x: tensor<?x?xf32>, %y: tensor<?x1xf32>) -> tensor<?x?xf32> {
  %z = tosa.sub %x, %y : (tensor<?x?xf32>, tensor<?x1xf32>) -> tensor<?x?xf32>
  return %z : tensor<?x?xf32>
}
