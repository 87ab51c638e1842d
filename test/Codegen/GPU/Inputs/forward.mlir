// Forward attention with head sizes 64 and 128, with and without mask, score region and log-sum-exp. All other sizes are
// dynamic.
func.func @plain_64(%q: tensor<?x?x?x64xbf16>, %k: tensor<?x?x?x64xbf16>, %v: tensor<?x?x?x64xbf16>) -> tensor<?x?x?x64xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] : (tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>) -> tensor<?x?x?x64xbf16>
  return %o : tensor<?x?x?x64xbf16>
}

func.func @plain_128(%q: tensor<?x?x?x128xf16>, %k: tensor<?x?x?x128xf16>, %v: tensor<?x?x?x128xf16>) -> tensor<?x?x?x128xf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] : (tensor<?x?x?x128xf16>, tensor<?x?x?x128xf16>, tensor<?x?x?x128xf16>) -> tensor<?x?x?x128xf16>
  return %o : tensor<?x?x?x128xf16>
}

func.func @causal_64(%q: tensor<?x?x?x64xf16>, %k: tensor<?x?x?x64xf16>, %v: tensor<?x?x?x64xf16>) -> (tensor<?x?x?x64xf16>, tensor<?x?x?xf32>) {
  %o, %l = attn.attention %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] mask causal<bottom_right> lse : (tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>) -> (tensor<?x?x?x64xf16>, tensor<?x?x?xf32>)
  return %o, %l : tensor<?x?x?x64xf16>, tensor<?x?x?xf32>
}

func.func @causal_128(%q: tensor<?x?x?x128xbf16>, %k: tensor<?x?x?x128xbf16>, %v: tensor<?x?x?x128xbf16>) -> (tensor<?x?x?x128xbf16>, tensor<?x?x?xf32>) {
  %o, %l = attn.attention %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] mask causal<bottom_right> lse : (tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16>) -> (tensor<?x?x?x128xbf16>, tensor<?x?x?xf32>)
  return %o, %l : tensor<?x?x?x128xbf16>, tensor<?x?x?xf32>
}

func.func @window_alibi_64(%q: tensor<?x8x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %v: tensor<?x2x?x64xbf16>, %slope: tensor<8xf32>) -> tensor<?x8x?x64xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%slope : tensor<8xf32>)
    mask causal<top_left> mask window<511, *>
    score(%s, %b, %h, %i, %j, %sl) {
      %m = tensor.extract %sl[%h] : tensor<8xf32>
      %d = arith.subi %j, %i : index
      %d32 = arith.index_cast %d : index to i32
      %df = arith.sitofp %d32 : i32 to f32
      %bias = arith.mulf %m, %df : f32
      %r = arith.addf %s, %bias : f32
      attn.yield %r : f32
    } : (tensor<?x8x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>) -> tensor<?x8x?x64xbf16>
  return %o : tensor<?x8x?x64xbf16>
}
