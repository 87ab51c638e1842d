// RUN: saccade-opt %s --attn-import-tosa --split-input-file | FileCheck %s
// The example of the pass description. Matching dynamic extents are assumed equal.

// EXAMPLE
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

// -----

// Tests on extents in the original program are kept.

// CHECK-LABEL: func.func @own_questions
// CHECK-SAME: %[[X:.*]]: tensor<?xf32>, %[[Y:.*]]: tensor<?xf32>
// CHECK: %[[LARGER:.*]] = arith.maxui
// CHECK-NOT: attn.own
// CHECK: %[[CHOSEN:.*]] = scf.if
// CHECK-NOT: attn.own
// CHECK: return %{{.*}}, %[[LARGER]], %[[CHOSEN]]
func.func @own_questions(%x: tensor<?xf32>, %y: tensor<?xf32>) -> (tensor<?xf32>, index, tensor<?xf32>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %a = tensor.dim %x, %zero : tensor<?xf32>
  %b = tensor.dim %y, %zero : tensor<?xf32>
  %larger = arith.maxui %a, %b : index
  %is_one = arith.cmpi eq, %a, %one : index
  %chosen = scf.if %is_one -> tensor<?xf32> {
    %w = math.absf %y : tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  } else {
    scf.yield %x : tensor<?xf32>
  }
  %z = tosa.exp %x : (tensor<?xf32>) -> tensor<?xf32>
  return %z, %larger, %chosen : tensor<?xf32>, index, tensor<?xf32>
}
