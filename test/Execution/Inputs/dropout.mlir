// Attention with dropout, for dropout.py. Positions are absolute, so a part of an attention with `at` has the bits of
// the whole.

func.func @run_time_rate(%q: tensor<?x6x?x32xf32>, %k: tensor<?x2x?x32xf32>, %v: tensor<?x2x?x24xf32>, %rate: f32, %seed: i64)
    -> tensor<?x6x?x24xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] dropout(%rate, %seed : f32, i64)
    : (tensor<?x6x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x24xf32>) -> tensor<?x6x?x24xf32>
  return %o : tensor<?x6x?x24xf32>
}

func.func @constant_rate(%q: tensor<?x6x?x32xf32>, %k: tensor<?x2x?x32xf32>, %v: tensor<?x2x?x24xf32>, %seed: tensor<1xi64>)
    -> tensor<?x6x?x24xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<bottom_right>
    dropout(0.1, %seed : tensor<1xi64>)
    : (tensor<?x6x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x24xf32>) -> tensor<?x6x?x24xf32>
  return %o : tensor<?x6x?x24xf32>
}

// With a score of 0 for all keys and the identity as values, an output row is the kept weights of its keys.
func.func @bits(%q: tensor<?x6x?x64xbf16>, %k: tensor<?x6x?x64xbf16>, %v: tensor<?x6x?x64xbf16>, %rate: f32, %seed: tensor<i64>)
    -> tensor<?x6x?x64xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] dropout(%rate, %seed : f32, tensor<i64>)
    : (tensor<?x6x?x64xbf16>, tensor<?x6x?x64xbf16>, tensor<?x6x?x64xbf16>) -> tensor<?x6x?x64xbf16>
  return %o : tensor<?x6x?x64xbf16>
}

func.func @dynamic_heads(%q: tensor<?x?x?x16xf64>, %k: tensor<?x?x?x16xf64>, %v: tensor<?x?x?x16xf64>, %rate: tensor<f32>, %seed: i64)
    -> tensor<?x?x?x16xf64> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] dropout(%rate, %seed : tensor<f32>, i64)
    : (tensor<?x?x?x16xf64>, tensor<?x?x?x16xf64>, tensor<?x?x?x16xf64>) -> tensor<?x?x?x16xf64>
  return %o : tensor<?x?x?x16xf64>
}

// Some batches, heads, queries and keys of an attention with %heads heads.
func.func @part(%q: tensor<?x?x?x16xf64>, %k: tensor<?x?x?x16xf64>, %v: tensor<?x?x?x16xf64>, %seed: i64, %heads: index, %b: index, %h: index, %i: index, %j: index)
    -> tensor<?x?x?x16xf64> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] at(%b, %h, %i, %j)
    dropout(0.25, %seed, %heads : i64, index)
    : (tensor<?x?x?x16xf64>, tensor<?x?x?x16xf64>, tensor<?x?x?x16xf64>) -> tensor<?x?x?x16xf64>
  return %o : tensor<?x?x?x16xf64>
}

// Dropout applies to the result of the weight region, and masked keys have weight 0.
func.func @weighted(%q: tensor<?x6x?x32xf32>, %k: tensor<?x2x?x32xf32>, %v: tensor<?x2x?x24xf32>, %seed: i64)
    -> tensor<?x6x?x24xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] dropout(0.5, %seed : i64)
    mask window<40, 3>
    weight(%p, %b, %h, %i, %j) {
      %two = arith.constant 2.0 : f32
      %w = arith.mulf %p, %two : f32
      attn.yield %w : f32
    }
    : (tensor<?x6x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x24xf32>) -> tensor<?x6x?x24xf32>
  return %o : tensor<?x6x?x24xf32>
}

func.func @ragged(%q: tensor<?x4x64xf32>, %k: tensor<?x2x64xf32>, %v: tensor<?x2x64xf32>, %n: tensor<?xi32>, %m: tensor<?xi32>, %seed: i64)
    -> tensor<?x4x64xf32> {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d] cu_seqlens_q(%n : tensor<?xi32>) cu_seqlens_k(%m : tensor<?xi32>)
    dropout(0.2, %seed : i64)
    : (tensor<?x4x64xf32>, tensor<?x2x64xf32>, tensor<?x2x64xf32>) -> tensor<?x4x64xf32>
  return %o : tensor<?x4x64xf32>
}
