// Diagnostics of forward mode.
// RUN: saccade-opt %s -split-input-file -attn-differentiate -verify-diagnostics

func.func @softmax(%x: tensor<4x8xf32>) -> tensor<4x8xf32> attributes {attn.jvp} {
  %e = tensor.empty() : tensor<4x8xf32>
  // expected-error @below {{'softmax' cannot be differentiated: no rule for 'linalg.softmax'}}
  %r = linalg.softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// -----

// A value that does not depend on an argument needs no rule.
func.func @constant_softmax(%x: tensor<4x8xf32>, %y: tensor<4x8xf32> {attn.no_gradient})
    -> tensor<4x8xf32> attributes {attn.jvp} {
  %e = tensor.empty() : tensor<4x8xf32>
  %s = linalg.softmax dimension(1) ins(%y : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %r = linalg.add ins(%x, %s : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// -----

func.func @largest(%x: tensor<4x8xf32>, %y: tensor<4xf32>) -> tensor<4xf32> attributes {attn.jvp} {
  // expected-error @below {{'largest' cannot be differentiated: no rule for 'linalg.reduce' that combines its output in another way than by a sum}}
  %r = linalg.reduce { arith.maximumf } ins(%x : tensor<4x8xf32>) outs(%y : tensor<4xf32>) dimensions = [1]
  return %r : tensor<4xf32>
}

// -----

func.func @gather(%x: tensor<8xf32>, %n: tensor<4xindex>) -> tensor<4xf32> attributes {attn.jvp} {
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

func.func @row_maximum(%q: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>) attributes {attn.jvp} {
  // expected-error @below {{'row_maximum' cannot be differentiated: no rule for the row maximum of 'attn.attention'}}
  %o, %m = attn.attention %q[s,d], %q[s,d], %q[s,d] max
      : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return %o, %m : tensor<4x8xf32>, tensor<4xf32>
}

// -----

func.func @bits(%q: tensor<4x8xf32>) -> tensor<4x8xf32> attributes {attn.jvp} {
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

// expected-error @below {{'taken' cannot be differentiated: there is a function 'taken_jvp' already}}
func.func @taken(%x: tensor<4xf32>) -> tensor<4xf32> attributes {attn.jvp} {
  return %x : tensor<4xf32>
}
func.func @taken_jvp(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

func.func @calls(%x: tensor<4xf32>) -> tensor<4xf32> attributes {attn.jvp} {
  // expected-error @below {{'calls' cannot be differentiated: no rule for 'func.call'}}
  %r = call @identity(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func @identity(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// An op without a rule that the results do not depend on.
func.func @unused(%x: tensor<4x8xf32>) -> tensor<4x8xf32> attributes {attn.jvp} {
  %e = tensor.empty() : tensor<4x8xf32>
  %s = linalg.softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %x : tensor<4x8xf32>
}

// -----

// There are no second derivatives.
func.func @second(%x: tensor<4x8xf32>, %l: tensor<4xf32>) -> tensor<4x8xf32> attributes {attn.jvp} {
  // expected-error @below {{'second' cannot be differentiated: no rule for 'attn.jvp'}}
  %r:2 = attn.jvp %x[s,d], %x[s,d], %x[s,d] query_tangent(%x : tensor<4x8xf32>) lse(%l : tensor<4xf32>)
      : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return %r#0 : tensor<4x8xf32>
}
