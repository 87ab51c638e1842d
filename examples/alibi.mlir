// A bias for each head that grows with the distance, under a causal mask: 8 query heads over 2 KV heads.
func.func @alibi(%q: tensor<?x8x?x64xf32>, %k: tensor<?x2x?x64xf32>, %v: tensor<?x2x?x64xf32>, %slope: tensor<8xf32>)
    -> tensor<?x8x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%slope : tensor<8xf32>)
    mask causal<bottom_right>
    score(%s, %b, %h, %i, %j, %sl) {
      %m = tensor.extract %sl[%h] : tensor<8xf32>
      %d = arith.subi %j, %i : index
      %d32 = arith.index_cast %d : index to i32
      %df = arith.sitofp %d32 : i32 to f32
      %bias = arith.mulf %m, %df : f32
      %biased = arith.addf %s, %bias : f32
      attn.yield %biased : f32
    } : (tensor<?x8x?x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>) -> tensor<?x8x?x64xf32>
  return %o : tensor<?x8x?x64xf32>
}
