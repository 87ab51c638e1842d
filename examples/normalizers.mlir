// Weights that are functions of the score alone, without a sum over the keys.

// Sigmoid attention: 1 / (1 + exp(-(s + bias))), with the bias -log(keys) or any other, given by the caller.
func.func @sigmoid(%q: tensor<?x8x?x64xf32>, %k: tensor<?x2x?x64xf32>, %v: tensor<?x2x?x64xf32>, %bias: f32)
    -> tensor<?x8x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%bias : f32) mask causal<bottom_right>
    normalizer(%s, %b, %h, %i, %j, %added) {
      %one = arith.constant 1.0 : f32
      %x = arith.addf %s, %added : f32
      %n = arith.negf %x : f32
      %e = math.exp %n : f32
      %d = arith.addf %e, %one : f32
      %r = arith.divf %one, %d : f32
      attn.yield %r : f32
    } : (tensor<?x8x?x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>) -> tensor<?x8x?x64xf32>
  return %o : tensor<?x8x?x64xf32>
}

// HSTU: SiLU(s) divided by the number of keys. Scores of recommenders have a bias by the distance of events in time.
func.func @hstu(%q: tensor<?x4x?x64xf32>, %k: tensor<?x4x?x64xf32>, %v: tensor<?x4x?x64xf32>, %bias: tensor<?x?xf32>)
    -> tensor<?x4x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%bias : tensor<?x?xf32>) mask causal<top_left>
    score(%s, %b, %h, %i, %j, %table) {
      %x = tensor.extract %table[%i, %j] : tensor<?x?xf32>
      %r = arith.addf %s, %x : f32
      attn.yield %r : f32
    }
    normalizer(%s, %b, %h, %i, %j, %table) {
      %one = arith.constant 1.0 : f32
      %keys = attn.length key
      %count = arith.index_cast %keys : index to i32
      %length = arith.sitofp %count : i32 to f32
      %n = arith.negf %s : f32
      %e = math.exp %n : f32
      %d = arith.addf %e, %one : f32
      %p = arith.divf %one, %d : f32
      %w = arith.mulf %s, %p : f32
      %r = arith.divf %w, %length : f32
      attn.yield %r : f32
    } : (tensor<?x4x?x64xf32>, tensor<?x4x?x64xf32>, tensor<?x4x?x64xf32>) -> tensor<?x4x?x64xf32>
  return %o : tensor<?x4x?x64xf32>
}

// Squared ReLU.
func.func @relu_squared(%q: tensor<?x8x?x64xf32>, %k: tensor<?x8x?x64xf32>, %v: tensor<?x8x?x64xf32>) -> tensor<?x8x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    normalizer(%s, %b, %h, %i, %j) {
      %zero = arith.constant 0.0 : f32
      %x = arith.maximumf %s, %zero : f32
      %r = arith.mulf %x, %x : f32
      attn.yield %r : f32
    } : (tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>) -> tensor<?x8x?x64xf32>
  return %o : tensor<?x8x?x64xf32>
}
