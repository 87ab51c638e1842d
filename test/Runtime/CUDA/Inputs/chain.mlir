// Programs for the tests of calls on a GPU: an attention alone, and one that follows another, whose result in between needs
// memory of the GPU.
func.func @attend(%q: tensor<?x?x?x64xf16>, %k: tensor<?x?x?x64xf16>, %v: tensor<?x?x?x64xf16>) -> (tensor<?x?x?x64xf16>, tensor<?x?x?xf32>) {
  %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<bottom_right> lse : (tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>) -> (tensor<?x?x?x64xf16>, tensor<?x?x?xf32>)
  return %o, %l : tensor<?x?x?x64xf16>, tensor<?x?x?xf32>
}

func.func @twice(%q: tensor<?x?x?x64xf16>, %k: tensor<?x?x?x64xf16>, %v: tensor<?x?x?x64xf16>) -> tensor<?x?x?x64xf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] : (tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>) -> tensor<?x?x?x64xf16>
  %p = attn.attention %o[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] : (tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>) -> tensor<?x?x?x64xf16>
  return %p : tensor<?x?x?x64xf16>
}
