// Arithmetic on whole tensors, as other compilers produce it; extents must agree as for structured ops.
// RUN: saccade-run %s --entry=arithmetic_on_tensors --arg=3x5:f32:1 --arg=3x5:f32:2 --check
// RUN: saccade-run %s --entry=arithmetic_on_tensors --arg=40x33:f32:1 --arg=40x33:f32:2 --check --target=portable
// RUN: not saccade-run %s --entry=arithmetic_on_tensors --arg=3x5:f32:1 --arg=3x6:f32:2 2>&1 | FileCheck %s
// CHECK: 6
// CHECK-SAME: 5

func.func @arithmetic_on_tensors(%x: tensor<?x?xf32>, %y: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %sum = arith.addf %x, %y : tensor<?x?xf32>
  %exp = math.exp %sum : tensor<?x?xf32>
  %less = arith.cmpf olt, %x, %y : tensor<?x?xf32>
  %r = arith.select %less, %exp, %x : tensor<?x?xi1>, tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}
