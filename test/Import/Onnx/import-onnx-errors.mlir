// RUN: saccade-opt %s --allow-unregistered-dialect --attn-import-onnx --split-input-file --verify-diagnostics

func.func @unknown_op(%x: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error @+1 {{onnx.Frobnicate: this op is not supported}}
  %y = "onnx.Frobnicate"(%x) : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

func.func @shapes_do_not_broadcast(%x: tensor<3xf32>, %y: tensor<4xf32>) -> tensor<3xf32> {
  // expected-error @+1 {{onnx.Add: the inputs 'tensor<3xf32>' 'tensor<4xf32>' do not broadcast to one another}}
  %z = "onnx.Add"(%x, %y) : (tensor<3xf32>, tensor<4xf32>) -> tensor<3xf32>
  return %z : tensor<3xf32>
}

// -----

func.func @rows_do_not_fit(%x: tensor<3x4xf32>, %y: tensor<5x6xf32>) -> tensor<3x6xf32> {
  // expected-error @+1 {{onnx.MatMul: rows of the RHS: found 5, expected 4}}
  %z = "onnx.MatMul"(%x, %y) : (tensor<3x4xf32>, tensor<5x6xf32>) -> tensor<3x6xf32>
  return %z : tensor<3x6xf32>
}

// -----

func.func @shape_known_too_late(%x: tensor<6xf32>, %shape: tensor<2xi64>) -> tensor<?x?xf32> {
  // expected-error @+1 {{onnx.Reshape: the shape must be constant or computed from shapes}}
  %y = "onnx.Reshape"(%x, %shape) : (tensor<6xf32>, tensor<2xi64>) -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

// -----

func.func @declared_otherwise(%x: tensor<6xf32>) -> tensor<5xf32> {
  %y = "onnx.Neg"(%x) : (tensor<6xf32>) -> tensor<5xf32>
  // expected-error @+1 {{result 0 is 'tensor<6xf32>', declared is 'tensor<5xf32>'}}
  return %y : tensor<5xf32>
}

// -----

func.func @heads_do_not_divide(%q: tensor<1x3x8x16xf32>, %k: tensor<1x2x8x16xf32>) -> tensor<1x3x8x16xf32> {
  // expected-error @+1 {{onnx.Attention: found 3 query heads, expected a multiple of the 2 KV heads}}
  %y = "onnx.Attention"(%q, %k, %k) : (tensor<1x3x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x3x8x16xf32>
  return %y : tensor<1x3x8x16xf32>
}

// -----

func.func @decay_of_another_width(%q: tensor<2x3x8xf32>, %g: tensor<2x3x5xf32>) -> tensor<2x3x8xf32> {
  %none = "onnx.NoValue"() : () -> none
  // expected-error @+1 {{onnx.LinearAttention: decay is 'tensor<2x3x5xf32>', expected one value per KV head or one for each of its 4 dimensions}}
  %y = "onnx.LinearAttention"(%q, %q, %q, %none, %g) {q_num_heads = 2 : i64, kv_num_heads = 2 : i64, update_rule = "gated"}
    : (tensor<2x3x8xf32>, tensor<2x3x8xf32>, tensor<2x3x8xf32>, none, tensor<2x3x5xf32>) -> tensor<2x3x8xf32>
  return %y : tensor<2x3x8xf32>
}

// -----

func.func @indices_beyond_the_rank(%x: tensor<4x5xf32>, %i: tensor<3x3xi64>) -> tensor<3xf32> {
  // expected-error @+1 {{onnx.GatherND: indices are 'tensor<3x3xi64>', expected a static last dimension of 1 to 2 for 'tensor<4x5xf32>'}}
  %y = "onnx.GatherND"(%x, %i) : (tensor<4x5xf32>, tensor<3x3xi64>) -> tensor<3xf32>
  return %y : tensor<3xf32>
}

// -----

func.func @image_smaller_than_the_filters(%x: tensor<1x3x1x8xf32>, %w: tensor<5x3x2x4xf32>) -> tensor<1x5x?x2xf32> {
  // expected-error @+1 {{onnx.Conv: the image has the extent 1, which is smaller than the filters}}
  %y = "onnx.Conv"(%x, %w) {strides = array<i64: 2, 4>} : (tensor<1x3x1x8xf32>, tensor<5x3x2x4xf32>) -> tensor<1x5x?x2xf32>
  return %y : tensor<1x5x?x2xf32>
}

// -----

func.func @strides_of_another_rank(%x: tensor<1x3x8x9xf32>, %w: tensor<5x3x2x4xf32>) -> tensor<1x5x4x2xf32> {
  // expected-error @+1 {{onnx.Conv: found 1 strides, expected 2}}
  %y = "onnx.Conv"(%x, %w) {strides = array<i64: 2>} : (tensor<1x3x8x9xf32>, tensor<5x3x2x4xf32>) -> tensor<1x5x4x2xf32>
  return %y : tensor<1x5x4x2xf32>
}

// -----

func.func @dilation_beyond_any_image(%x: tensor<1x1x8xf32>, %w: tensor<1x1x9xf32>) -> tensor<1x1x8xf32> {
  // expected-error @+1 {{onnx.Conv: a stride, a padding or the extent of a window is too large, expected at most 2147483648}}
  %y = "onnx.Conv"(%x, %w) {dilations = array<i64: 2305843009213693952>} : (tensor<1x1x8xf32>, tensor<1x1x9xf32>) -> tensor<1x1x8xf32>
  return %y : tensor<1x1x8xf32>
}

// -----

func.func @padding_beyond_any_image(%x: tensor<1x1x8xf32>, %w: tensor<1x1x3xf32>) -> tensor<1x1x8xf32> {
  // expected-error @+1 {{onnx.Conv: a stride, a padding or the extent of a window is too large}}
  %y = "onnx.Conv"(%x, %w) {pads = array<i64: 9223372036854775807, 9223372036854775807>} : (tensor<1x1x8xf32>, tensor<1x1x3xf32>) -> tensor<1x1x8xf32>
  return %y : tensor<1x1x8xf32>
}

// -----

func.func @unknown_padding(%x: tensor<1x1x8xf32>, %w: tensor<1x1x3xf32>) -> tensor<1x1x8xf32> {
  // expected-error @+1 {{onnx.Conv: 'auto_pad' is 'valid', expected NOTSET, VALID, SAME_UPPER or SAME_LOWER}}
  %y = "onnx.Conv"(%x, %w) {auto_pad = "valid"} : (tensor<1x1x8xf32>, tensor<1x1x3xf32>) -> tensor<1x1x8xf32>
  return %y : tensor<1x1x8xf32>
}

// -----

func.func @channels_of_another_group(%x: tensor<1x4x8x9xf32>, %w: tensor<6x4x1x1xf32>) -> tensor<1x6x8x9xf32> {
  // expected-error @+1 {{onnx.Conv: channels of the filters: found 4, expected 2}}
  %y = "onnx.Conv"(%x, %w) {group = 2 : i64} : (tensor<1x4x8x9xf32>, tensor<6x4x1x1xf32>) -> tensor<1x6x8x9xf32>
  return %y : tensor<1x6x8x9xf32>
}

// -----

func.func @state_of_another_shape(%q: tensor<2x3x8xf32>, %s: tensor<2x2x4x5xf32>) -> tensor<2x3x8xf32> {
  // expected-error @+1 {{onnx.LinearAttention: past_state is 'tensor<2x2x4x5xf32>', expected [batch, KV heads, 4, 4]}}
  %y = "onnx.LinearAttention"(%q, %q, %q, %s) {q_num_heads = 2 : i64, kv_num_heads = 2 : i64, update_rule = "linear"}
    : (tensor<2x3x8xf32>, tensor<2x3x8xf32>, tensor<2x3x8xf32>, tensor<2x2x4x5xf32>) -> tensor<2x3x8xf32>
  return %y : tensor<2x3x8xf32>
}

// -----

func.func @state_of_integers(%q: tensor<2x3x8xf32>, %s: tensor<2x2x4x4xi32>) -> tensor<2x3x8xf32> {
  // expected-error @+1 {{onnx.LinearAttention: past_state is 'tensor<2x2x4x4xi32>', expected [batch, KV heads, 4, 4]}}
  %y = "onnx.LinearAttention"(%q, %q, %q, %s) {q_num_heads = 2 : i64, kv_num_heads = 2 : i64, update_rule = "linear"}
    : (tensor<2x3x8xf32>, tensor<2x3x8xf32>, tensor<2x3x8xf32>, tensor<2x2x4x4xi32>) -> tensor<2x3x8xf32>
  return %y : tensor<2x3x8xf32>
}

// -----

func.func @branch_that_depends_on_data(%yes: tensor<i1>, %x: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error @+1 {{onnx.If: the condition must be constant: data-dependent branches are not supported}}
  %y = "onnx.If"(%yes) ({
    "onnx.Return"(%x) : (tensor<2xf32>) -> ()
  }, {
    "onnx.Return"(%x) : (tensor<2xf32>) -> ()
  }) {regions = ["then_branch", "else_branch"]} : (tensor<i1>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}

// -----

func.func @keys_of_another_head_size(%q: tensor<1x2x3x8xf32>, %k: tensor<1x2x3x4xf32>) -> tensor<1x2x3x8xf32> {
  // expected-error @+1 {{onnx.preview.FlexAttention: the head size of the key: found 4, expected 8}}
  %y = "onnx.preview.FlexAttention"(%q, %k, %q) {regions = []} : (tensor<1x2x3x8xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x8xf32>) -> tensor<1x2x3x8xf32>
  return %y : tensor<1x2x3x8xf32>
}

// -----

func.func @updates_of_another_rank(%x: tensor<3x4xf32>, %i: tensor<3x4xi64>, %u: tensor<3xf32>) -> tensor<3x4xf32> {
  // expected-error @+1 {{onnx.ScatterElements: indices are 'tensor<3x4xi64>' and updates 'tensor<3xf32>', expected equal shapes of at most 'tensor<3x4xf32>' except along axis 0}}
  %y = "onnx.ScatterElements"(%x, %i, %u) : (tensor<3x4xf32>, tensor<3x4xi64>, tensor<3xf32>) -> tensor<3x4xf32>
  return %y : tensor<3x4xf32>
}

// -----

func.func @input_of_two_dimensions(%x: tensor<6x9xf32>, %w: tensor<6x1x3xf32>) -> tensor<2x6x9xf32> {
  // expected-error @+1 {{onnx.CausalConvWithState: the input is 'tensor<6x9xf32>', expected [batch, channels, length] of floating point}}
  %y = "onnx.CausalConvWithState"(%x, %w)
    : (tensor<6x9xf32>, tensor<6x1x3xf32>) -> tensor<2x6x9xf32>
  return %y : tensor<2x6x9xf32>
}

// -----

func.func @filters_of_several_channels(%x: tensor<2x6x9xf32>, %w: tensor<6x2x3xf32>) -> tensor<2x6x9xf32> {
  // expected-error @+1 {{onnx.CausalConvWithState: the weight is 'tensor<6x2x3xf32>', expected [channels, 1, width] with static extents}}
  %y = "onnx.CausalConvWithState"(%x, %w)
    : (tensor<2x6x9xf32>, tensor<6x2x3xf32>) -> tensor<2x6x9xf32>
  return %y : tensor<2x6x9xf32>
}

// -----

func.func @filters_of_another_type(%x: tensor<2x6x9xf32>, %w: tensor<6x1x3xf16>) -> tensor<2x6x9xf32> {
  // expected-error @+1 {{onnx.CausalConvWithState: the weight is 'tensor<6x1x3xf16>', expected 3 dimensions of 'f32'}}
  %y = "onnx.CausalConvWithState"(%x, %w)
    : (tensor<2x6x9xf32>, tensor<6x1x3xf16>) -> tensor<2x6x9xf32>
  return %y : tensor<2x6x9xf32>
}

// -----

func.func @filters_of_other_channels(%x: tensor<2x6x9xf32>, %w: tensor<5x1x3xf32>) -> tensor<2x6x9xf32> {
  // expected-error @+1 {{onnx.CausalConvWithState: channels of the input: found 6, expected 5}}
  %y = "onnx.CausalConvWithState"(%x, %w)
    : (tensor<2x6x9xf32>, tensor<5x1x3xf32>) -> tensor<2x6x9xf32>
  return %y : tensor<2x6x9xf32>
}

// -----

func.func @bias_of_other_channels(%x: tensor<2x6x9xf32>, %w: tensor<6x1x3xf32>, %b: tensor<5xf32>) -> tensor<2x6x9xf32> {
  // expected-error @+1 {{onnx.CausalConvWithState: elements of the bias: found 5, expected 6}}
  %y = "onnx.CausalConvWithState"(%x, %w, %b)
    : (tensor<2x6x9xf32>, tensor<6x1x3xf32>, tensor<5xf32>) -> tensor<2x6x9xf32>
  return %y : tensor<2x6x9xf32>
}

// -----

func.func @bias_of_two_dimensions(%x: tensor<2x6x9xf32>, %w: tensor<6x1x3xf32>, %b: tensor<6x1xf32>) -> tensor<2x6x9xf32> {
  // expected-error @+1 {{onnx.CausalConvWithState: the bias is 'tensor<6x1xf32>', expected 1 dimension of 'f32'}}
  %y = "onnx.CausalConvWithState"(%x, %w, %b)
    : (tensor<2x6x9xf32>, tensor<6x1x3xf32>, tensor<6x1xf32>) -> tensor<2x6x9xf32>
  return %y : tensor<2x6x9xf32>
}

// -----

func.func @state_of_another_width(%x: tensor<2x6x9xf32>, %w: tensor<6x1x3xf32>, %b: tensor<6xf32>, %p: tensor<2x6x3xf32>) -> tensor<2x6x9xf32> {
  // expected-error @+1 {{onnx.CausalConvWithState: past_state is 'tensor<2x6x3xf32>', expected [batch, channels, width - 1] as in 'tensor<2x6x2xf32>'}}
  %y = "onnx.CausalConvWithState"(%x, %w, %b, %p)
    : (tensor<2x6x9xf32>, tensor<6x1x3xf32>, tensor<6xf32>, tensor<2x6x3xf32>) -> tensor<2x6x9xf32>
  return %y : tensor<2x6x9xf32>
}

// -----

func.func @unknown_activation(%x: tensor<2x6x9xf32>, %w: tensor<6x1x3xf32>) -> tensor<2x6x9xf32> {
  // expected-error @+1 {{onnx.CausalConvWithState: unknown activation 'relu', expected none, silu or swish}}
  %y = "onnx.CausalConvWithState"(%x, %w) {activation = "relu"}
    : (tensor<2x6x9xf32>, tensor<6x1x3xf32>) -> tensor<2x6x9xf32>
  return %y : tensor<2x6x9xf32>
}
