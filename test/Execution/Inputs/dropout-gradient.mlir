// Gradients of attention with dropout, for dropout.py.
func.func @default(%q: tensor<?x4x?x32xf32>, %k: tensor<?x2x?x32xf32>, %v: tensor<?x2x?x32xf32>, %do: tensor<?x4x?x32xf32>,
                   %lse: tensor<?x4x?xf32>, %delta: tensor<?x4x?xf32>, %rate: f32, %seed: i64)
    -> (tensor<?x4x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x32xf32>) {
  %dq, %dk, %dv = attn.gradient %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    output_gradient(%do[b,h,s,d] : tensor<?x4x?x32xf32>) lse(%lse : tensor<?x4x?xf32>) delta(%delta : tensor<?x4x?xf32>)
    mask causal<top_left> dropout(%rate, %seed : f32, i64)
    : (tensor<?x4x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x32xf32>)
    -> (tensor<?x4x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x32xf32>)
  return %dq, %dk, %dv : tensor<?x4x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x32xf32>
}

// A gradient region reads the gradient of the weight before dropout. The score is 3 · s.
func.func @of_a_score(%q: tensor<?x4x?x32xf32>, %k: tensor<?x2x?x32xf32>, %v: tensor<?x2x?x32xf32>, %do: tensor<?x4x?x32xf32>,
                      %lse: tensor<?x4x?xf32>, %delta: tensor<?x4x?xf32>, %rate: f32, %seed: i64)
    -> (tensor<?x4x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x32xf32>) {
  %dq, %dk, %dv = attn.gradient %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    output_gradient(%do[b,h,s,d] : tensor<?x4x?x32xf32>) lse(%lse : tensor<?x4x?xf32>) delta(%delta : tensor<?x4x?xf32>)
    mask causal<top_left> dropout(%rate, %seed : f32, i64)
    score(%s, %b, %h, %i, %j) {
      %three = arith.constant 3.0 : f32
      %r = arith.mulf %s, %three : f32
      attn.yield %r : f32
    }
    gradient(%p, %s, %dp, %delta_i, %b, %h, %i, %j) {
      %three = arith.constant 3.0 : f32
      %difference = arith.subf %dp, %delta_i : f32
      %ds = arith.mulf %p, %difference : f32
      %r = arith.mulf %ds, %three : f32
      attn.yield %r : f32
    }
    : (tensor<?x4x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x32xf32>)
    -> (tensor<?x4x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x32xf32>)
  return %dq, %dk, %dv : tensor<?x4x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x32xf32>
}

// The compiler derives the gradient function.
func.func @differentiated(%q: tensor<?x4x?x32xf32>, %k: tensor<?x2x?x32xf32>, %v: tensor<?x2x?x32xf32>, %seed: i64)
    -> tensor<?x4x?x32xf32> attributes {attn.gradient} {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<top_left> dropout(0.3, %seed : i64)
    : (tensor<?x4x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x32xf32>) -> tensor<?x4x?x32xf32>
  return %o : tensor<?x4x?x32xf32>
}
