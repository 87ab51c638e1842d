// RUN: saccade-opt %s -split-input-file -attn-differentiate -verify-diagnostics

func.func @softmax(%x: tensor<4x8xf32>) -> tensor<4x8xf32> attributes {attn.gradient} {
  %e = tensor.empty() : tensor<4x8xf32>
  // expected-error @below {{'softmax' cannot be differentiated: no rule for 'linalg.softmax'}}
  %r = linalg.softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// -----

// A value that does not depend on an argument needs no rule.
func.func @constant_softmax(%x: tensor<4x8xf32>, %y: tensor<4x8xf32> {attn.no_gradient})
    -> tensor<4x8xf32> attributes {attn.gradient} {
  %e = tensor.empty() : tensor<4x8xf32>
  %s = linalg.softmax dimension(1) ins(%y : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %r = linalg.add ins(%x, %s : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// -----

func.func @largest(%x: tensor<4x8xf32>, %y: tensor<4xf32>) -> tensor<4xf32> attributes {attn.gradient} {
  // expected-error @below {{'largest' cannot be differentiated: no rule for 'linalg.reduce' that combines its output in another way than by a sum}}
  %r = linalg.reduce { arith.maximumf } ins(%x : tensor<4x8xf32>) outs(%y : tensor<4xf32>) dimensions = [1]
  return %r : tensor<4xf32>
}

// -----

func.func @gather(%x: tensor<8xf32>, %n: tensor<4xindex>) -> tensor<4xf32> attributes {attn.gradient} {
  %e = tensor.empty() : tensor<4xf32>
  // expected-error @below {{'gather' cannot be differentiated: no rule for 'linalg.generic' with reads of a tensor at computed positions}}
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%n : tensor<4xindex>) outs(%e : tensor<4xf32>) {
    ^bb0(%i: index, %out: f32):
      %0 = tensor.extract %x[%i] : tensor<8xf32>
      linalg.yield %0 : f32
    } -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

func.func @strided(%x: tensor<9xf32>, %w: tensor<3xf32>) -> tensor<7xf32> attributes {attn.gradient} {
  %e = tensor.empty() : tensor<7xf32>
  // expected-error @below {{'strided' cannot be differentiated: no rule for 'linalg.conv_1d' with the indexing map affine_map<(d0, d1) -> (d0 + d1)>}}
  %r = linalg.conv_1d ins(%x, %w : tensor<9xf32>, tensor<3xf32>) outs(%e : tensor<7xf32>) -> tensor<7xf32>
  return %r : tensor<7xf32>
}

// -----

func.func @row_maximum(%q: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>) attributes {attn.gradient} {
  // expected-error @below {{'row_maximum' cannot be differentiated: no rule for the row maximum of 'attn.attention'}}
  %o, %m = attn.attention %q[s,d], %q[s,d], %q[s,d] max
      : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return %o, %m : tensor<4x8xf32>, tensor<4xf32>
}

// -----

func.func @bits(%q: tensor<4x8xf32>) -> tensor<4x8xf32> attributes {attn.gradient} {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d]
    score(%s, %b, %h, %i, %j) {
      // expected-error @below {{'arith.bitcast' op has no derivative, but the score region is differentiated through it}}
      %0 = arith.bitcast %s : f32 to i32
      %1 = arith.bitcast %0 : i32 to f32
      attn.yield %1 : f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// -----

// expected-error @below {{'taken' cannot be differentiated: there is a function 'taken_gradient' already}}
func.func @taken(%x: tensor<4xf32>) -> tensor<4xf32> attributes {attn.gradient} {
  return %x : tensor<4xf32>
}
func.func @taken_gradient(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

func.func @calls(%x: tensor<4xf32>) -> tensor<4xf32> attributes {attn.gradient} {
  // expected-error @below {{'calls' cannot be differentiated: no rule for 'func.call'}}
  %r = call @identity(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func @identity(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

func.func @other_dimensions(%q: tensor<4x8xf32>, %v: tensor<2x4x8xf32>) -> tensor<2x4x8xf32> attributes {attn.gradient} {
  // expected-error @below {{'other_dimensions' cannot be differentiated: no rule for queries, keys and values of different dimensions of 'attn.linear'}}
  %o = attn.linear %q[s,d], %q[s,d], %v[h,s,d] out[h,s,d]
      : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %o : tensor<2x4x8xf32>
}
