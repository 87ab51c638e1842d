// RUN: saccade-opt %s --allow-unregistered-dialect --attn-import-stablehlo --split-input-file --verify-diagnostics

func.func @unknown_op(%x: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error @+1 {{stablehlo.fft: this op is not supported}}
  %y = "stablehlo.fft"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

func.func @unsigned(%x: tensor<8xui32>) -> tensor<8xui32> {
  // expected-error @+1 {{stablehlo.add: the type 'tensor<8xui32>' is not supported}}
  %y = "stablehlo.add"(%x, %x) : (tensor<8xui32>, tensor<8xui32>) -> tensor<8xui32>
  return %y : tensor<8xui32>
}

// -----

func.func @shapes_differ(%x: tensor<3xf32>, %y: tensor<4xf32>) -> tensor<3xf32> {
  // expected-error @+1 {{stablehlo.add: the operands 'tensor<3xf32>' 'tensor<4xf32>' have different shapes}}
  %z = "stablehlo.add"(%x, %y) : (tensor<3xf32>, tensor<4xf32>) -> tensor<3xf32>
  return %z : tensor<3xf32>
}

// -----

func.func @elements_differ(%x: tensor<3xf32>, %y: tensor<3xi32>) -> tensor<3xf32> {
  // expected-error @+1 {{stablehlo.multiply: found elements of 'i32' and of 'f32'}}
  %z = "stablehlo.multiply"(%x, %y) : (tensor<3xf32>, tensor<3xi32>) -> tensor<3xf32>
  return %z : tensor<3xf32>
}

// -----

func.func @no_such_comparison(%x: tensor<3xf32>) -> tensor<3xi1> {
  // expected-error @+1 {{a comparison 'UNLIKE' of type '' is not supported}}
  %z = "stablehlo.compare"(%x, %x) <{comparison_direction = #stablehlo<comparison_direction UNLIKE>}> : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
  return %z : tensor<3xi1>
}

// -----

func.func @dimensions_missing(%x: tensor<3x4xf32>) -> tensor<3x3xf32> {
  // expected-error @+1 {{stablehlo.dot_general: the attribute 'dot_dimension_numbers' is missing or not of the form #stablehlo.dot<...>}}
  %z = "stablehlo.dot_general"(%x, %x) : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x3xf32>
  return %z : tensor<3x3xf32>
}

// -----

func.func @depths_differ(%x: tensor<3x4xf32>, %y: tensor<5x6xf32>) -> tensor<3x6xf32> {
  // expected-error @+1 {{stablehlo.dot_general: contracting dimensions: found 5, expected 4}}
  %z = "stablehlo.dot_general"(%x, %y) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<3x4xf32>, tensor<5x6xf32>) -> tensor<3x6xf32>
  return %z : tensor<3x6xf32>
}

// -----

func.func @dimension_outside(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
  // expected-error @+1 {{stablehlo.transpose: permutation: dimension 2 is outside of a tensor with 2 dimensions}}
  %z = "stablehlo.transpose"(%x) <{permutation = array<i64: 0, 2>}> : (tensor<3x4xf32>) -> tensor<3x4xf32>
  return %z : tensor<3x4xf32>
}

// -----

func.func @shape_known_too_late(%x: tensor<6xf32>, %shape: tensor<2xi32>) -> tensor<?x?xf32> {
  // expected-error @+1 {{stablehlo.dynamic_reshape: the shape must be constant or computed from shapes, found the run-time value 'tensor<2xi32>'}}
  %y = "stablehlo.dynamic_reshape"(%x, %shape) : (tensor<6xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

// -----

func.func @sizes_do_not_fit(%x: tensor<6xf32>) -> tensor<4x2xf32> {
  // expected-error @+1 {{stablehlo.reshape: cannot reshape 'tensor<6xf32>' to 'tensor<4x2xf32>'}}
  %y = "stablehlo.reshape"(%x) : (tensor<6xf32>) -> tensor<4x2xf32>
  return %y : tensor<4x2xf32>
}

// -----

func.func @slice_outside(%x: tensor<6xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{stablehlo.slice: the slice from 3 to 7 by 1 is out of range for 'tensor<6xf32>'}}
  %y = "stablehlo.slice"(%x) <{start_indices = array<i64: 3>, limit_indices = array<i64: 7>, strides = array<i64: 1>}> : (tensor<6xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @padding_between(%x: tensor<6xf32>, %v: tensor<f32>) -> tensor<11xf32> {
  // expected-error @+1 {{stablehlo.pad: padding between elements is not supported}}
  %y = "stablehlo.pad"(%x, %v) <{edge_padding_low = array<i64: 0>, edge_padding_high = array<i64: 0>, interior_padding = array<i64: 1>}> : (tensor<6xf32>, tensor<f32>) -> tensor<11xf32>
  return %y : tensor<11xf32>
}

// -----

func.func @region_of_other_ops(%x: tensor<6xf32>, %v: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{stablehlo.reduce: in the region, stablehlo.sort: this op is not supported}}
  %y = "stablehlo.reduce"(%x, %v) <{dimensions = array<i64: 0>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = "stablehlo.sort"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%c) : (tensor<f32>) -> ()
  }) : (tensor<6xf32>, tensor<f32>) -> tensor<f32>
  return %y : tensor<f32>
}

// -----

func.func @steps_known_too_late(%n: tensor<i32>, %x: tensor<i32>) -> tensor<i32> {
  // expected-error @+1 {{stablehlo.while: the trip count must be constant: data-dependent loops are not supported}}
  %r = "stablehlo.while"(%x) ({
  ^bb0(%i: tensor<i32>):
    %c = "stablehlo.compare"(%i, %n) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%c) : (tensor<i1>) -> ()
  }, {
  ^bb0(%i: tensor<i32>):
    "stablehlo.return"(%i) : (tensor<i32>) -> ()
  }) : (tensor<i32>) -> tensor<i32>
  return %r : tensor<i32>
}

// -----

func.func @steps_without_end() -> tensor<i32> {
  %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
  // expected-error @+1 {{stablehlo.while: the loop has more than 64 iterations}}
  %r = "stablehlo.while"(%zero) ({
  ^bb0(%i: tensor<i32>):
    %c = "stablehlo.compare"(%i, %i) <{comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%c) : (tensor<i1>) -> ()
  }, {
  ^bb0(%i: tensor<i32>):
    "stablehlo.return"(%i) : (tensor<i32>) -> ()
  }) : (tensor<i32>) -> tensor<i32>
  return %r : tensor<i32>
}

// -----

func.func @custom_call(%x: tensor<6xf32>) -> tensor<6xf32> {
  // expected-error @+1 {{stablehlo.custom_call: the custom call of 'lapack_spotrf' is not supported}}
  %y = "stablehlo.custom_call"(%x) <{call_target_name = "lapack_spotrf"}> : (tensor<6xf32>) -> tensor<6xf32>
  return %y : tensor<6xf32>
}

// -----

func.func @convolution_of_a_dilated_image(%x: tensor<1x8x8x3xf32>, %w: tensor<3x3x3x5xf32>) -> tensor<1x13x13x5xf32> {
  // expected-error @+1 {{stablehlo.convolution: convolutions of dilated images, with batch groups or reversed windows are not supported}}
  %y = "stablehlo.convolution"(%x, %w) <{batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64, lhs_dilation = array<i64: 2, 2>, window_strides = array<i64: 1, 1>}> : (tensor<1x8x8x3xf32>, tensor<3x3x3x5xf32>) -> tensor<1x13x13x5xf32>
  return %y : tensor<1x13x13x5xf32>
}

// -----

func.func @gather_of_other_dimensions(%x: tensor<4x5xf32>, %i: tensor<2x3xi32>) -> tensor<2x5xf32> {
  // expected-error @+1 {{stablehlo.gather: the dimension numbers do not fit 'tensor<4x5xf32>' and 'tensor<2x3xi32>'}}
  %y = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 5>}> : (tensor<4x5xf32>, tensor<2x3xi32>) -> tensor<2x5xf32>
  return %y : tensor<2x5xf32>
}

// -----

func.func @caller(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = func.call @called_by_itself(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func private @called_by_itself(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = "stablehlo.negate"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error @+1 {{'called_by_itself' is recursive, or inlining exceeds 200000 ops}}
  %z = func.call @called_by_itself(%y) : (tensor<4xf32>) -> tensor<4xf32>
  return %z : tensor<4xf32>
}

// -----

func.func @computed_slice_outside(%x: tensor<6xf32>) -> tensor<4xf32> {
  %first = arith.constant dense<3> : tensor<1xi64>
  %limit = arith.constant dense<7> : tensor<1xi64>
  %step = arith.constant dense<1> : tensor<1xi64>
  // expected-error @+1 {{stablehlo.real_dynamic_slice: a slice of 4 elements is out of range for 'tensor<6xf32>'}}
  %y = "stablehlo.real_dynamic_slice"(%x, %first, %limit, %step) : (tensor<6xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
