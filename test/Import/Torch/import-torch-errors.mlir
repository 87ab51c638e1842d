// RUN: saccade-opt %s --allow-unregistered-dialect --attn-import-torch --split-input-file --verify-diagnostics

func.func @unknown_op(%x: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error @+1 {{torch.aten.frobnicate: this op is not supported}}
  %y = "torch.aten.frobnicate"(%x) {arguments = ["self"]} : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

func.func @nameless_operand(%x: tensor<3xf32>) -> tensor<3xf32> {
  // expected-error @+1 {{torch.aten.neg: found 0 names of arguments, wanted one for each of 1 operands}}
  %y = "torch.aten.neg"(%x) : (tensor<3xf32>) -> tensor<3xf32>
  return %y : tensor<3xf32>
}

// -----

func.func @missing_argument(%x: tensor<3xf32>) -> tensor<3xf32> {
  // expected-error @+1 {{torch.aten.add: the argument 'other' is missing}}
  %y = "torch.aten.add"(%x) {arguments = ["self"]} : (tensor<3xf32>) -> tensor<3xf32>
  return %y : tensor<3xf32>
}

// -----

func.func @shapes_do_not_broadcast(%x: tensor<3xf32>, %y: tensor<4xf32>) -> tensor<3xf32> {
  // expected-error @+1 {{torch.aten.add: the inputs 'tensor<3xf32>' 'tensor<4xf32>' do not broadcast to one another}}
  %z = "torch.aten.add"(%x, %y) {arguments = ["self", "other"]} : (tensor<3xf32>, tensor<4xf32>) -> tensor<3xf32>
  return %z : tensor<3xf32>
}

// -----

func.func @size_known_too_late(%x: tensor<6xf32>, %n: tensor<i64>) -> tensor<?xf32> {
  // expected-error @+1 {{torch.aten.view: 'size' must be constant or computed from shapes, found 'tensor<i64>' that only the run time knows}}
  %y = "torch.aten.view"(%x, %n) {arguments = ["self", "size"], size = [unit]} : (tensor<6xf32>, tensor<i64>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

func.func @elements_that_only_data_choose(%x: tensor<6xf32>, %m: tensor<6xi1>) -> tensor<?xf32> {
  // expected-error @+1 {{torch.aten.index: a mask of bool as index is not supported}}
  %y = "torch.aten.index"(%x, %m) {arguments = ["self", "indices"]} : (tensor<6xf32>, tensor<6xi1>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

func.func @key_of_other_depth(%q: tensor<2x4x8xf32>, %k: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  // expected-error @+1 {{torch.aten.scaled_dot_product_attention: the depth of the key: found 6, wanted 8}}
  %y = "torch.aten.scaled_dot_product_attention"(%q, %k, %k) {arguments = ["query", "key", "value"]}
    : (tensor<2x4x8xf32>, tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32>
  return %y : tensor<2x4x6xf32>
}

// -----

func.func @mask_of_numbers(%q: tensor<2x4x8xf32>, %m: tensor<4x4xi64>) -> tensor<2x4x8xf32> {
  // expected-error @+1 {{torch.aten.scaled_dot_product_attention: the mask is 'tensor<4x4xi64>', wanted bool or floating point}}
  %y = "torch.aten.scaled_dot_product_attention"(%q, %q, %q, %m) {arguments = ["query", "key", "value", "attn_mask"]}
    : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<4x4xi64>) -> tensor<2x4x8xf32>
  return %y : tensor<2x4x8xf32>
}

// -----

func.func @overlapping_gaps(%x: tensor<4x4xf32>) -> tensor<2xf32> {
  // expected-error @+1 {{torch.aten.as_strided: a tensor that does not lie densely in memory is not supported}}
  %y = "torch.aten.as_strided"(%x) {arguments = ["self"], size = [2], stride = [1], self_stride = [8, 1]} : (tensor<4x4xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}

// -----

func.func @argument_that_nobody_reads(%x: tensor<6xf32>) -> tensor<6xf32> {
  // expected-error @+1 {{torch.aten.relu: the argument 'slope' is not supported}}
  %y = "torch.aten.relu"(%x) {arguments = ["self"], slope = 0.5 : f64} : (tensor<6xf32>) -> tensor<6xf32>
  return %y : tensor<6xf32>
}

// -----

func.func @size_where_a_constant_is_wanted(%x: tensor<?xf32>) -> tensor<?xf32> {
  %n = "torch.aten.sym_size"(%x) {arguments = ["self"], dim = 0 : i64} : (tensor<?xf32>) -> tensor<i64>
  // expected-error @+1 {{torch.aten.slice: the argument 'step' must be constant}}
  %y = "torch.aten.slice"(%x, %n) {arguments = ["self", "step"], dim = 0 : i64} : (tensor<?xf32>, tensor<i64>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

func.func @declared_otherwise(%x: tensor<6xf32>) -> tensor<6xf16> {
  %y = "torch.aten.neg"(%x) {arguments = ["self"]} : (tensor<6xf32>) -> tensor<6xf16>
  // expected-error @+1 {{result 0 is 'tensor<6xf32>', declared is 'tensor<6xf16>'}}
  return %y : tensor<6xf16>
}
