// RUN: saccade-opt %s --allow-unregistered-dialect --attn-import-torch --split-input-file --verify-diagnostics

// Shared by all frontends: equations that do not fit the operands are rejected, so no operand is read out of bounds.

func.func @extents_differ(%a: tensor<3x4xf32>, %b: tensor<5x6xf32>) -> tensor<3x6xf32> {
  // expected-error @+1 {{torch.aten.einsum: a letter of the equation has extents 4 and 5}}
  %r = "torch.aten.einsum"(%a, %b) {equation = "ij,jk", arguments = ["tensors", "tensors"]}
    : (tensor<3x4xf32>, tensor<5x6xf32>) -> tensor<3x6xf32>
  return %r : tensor<3x6xf32>
}

// -----

func.func @diagonal_of_a_column(%a: tensor<4x1xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{torch.aten.einsum: dimensions 0 and 1 of 'tensor<4x1xf32>' have the same letter, expected the same extent}}
  %r = "torch.aten.einsum"(%a) {equation = "ii->i", arguments = ["tensors"]} : (tensor<4x1xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

func.func @diagonal_of_what_may_differ(%a: tensor<?x?xf32>) -> tensor<?xf32> {
  // expected-error @+1 {{torch.aten.einsum: dimensions 0 and 1 of 'tensor<?x?xf32>' have the same letter, expected the same extent}}
  %r = "torch.aten.einsum"(%a) {equation = "ii->i", arguments = ["tensors"]} : (tensor<?x?xf32>) -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// -----

func.func @result_names_twice(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  // expected-error @+1 {{torch.aten.einsum: the result of the equation repeats a letter or has one that no term has}}
  %r = "torch.aten.einsum"(%a) {equation = "ij->ii", arguments = ["tensors"]} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %r : tensor<4x4xf32>
}

// -----

func.func @operand_missing(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %none = "torch.NoValue"() : () -> none
  // expected-error @+1 {{torch.aten.einsum: an input is missing}}
  %r = "torch.aten.einsum"(%a, %none) {equation = "ij,jk", arguments = ["tensors", "tensors"]}
    : (tensor<4x4xf32>, none) -> tensor<4x4xf32>
  return %r : tensor<4x4xf32>
}

// -----

func.func @types_differ(%a: tensor<3x4xf32>, %b: tensor<4x6xf64>) -> tensor<3x6xf32> {
  // expected-error @+1 {{torch.aten.einsum: found elements of 'f64' and 'f32', expected numbers of one type}}
  %r = "torch.aten.einsum"(%a, %b) {equation = "ij,jk", arguments = ["tensors", "tensors"]}
    : (tensor<3x4xf32>, tensor<4x6xf64>) -> tensor<3x6xf32>
  return %r : tensor<3x6xf32>
}
