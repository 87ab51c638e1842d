// Long sequences: tiles of keys pass through an online softmax, so memory grows with N and not with N². At 16,384
// tokens a matrix of scores would take 1 GB; here nothing of that size ever exists.

// One head of 64, any length; N = 100, 196, 1,024 and 16,384 in the tests.
func.func @one_long_head(%q: tensor<1x1x?x64xf32>, %k: tensor<1x1x?x64xf32>, %v: tensor<1x1x?x64xf32>)
    -> tensor<1x1x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    : (tensor<1x1x?x64xf32>, tensor<1x1x?x64xf32>, tensor<1x1x?x64xf32>) -> tensor<1x1x?x64xf32>
  return %o : tensor<1x1x?x64xf32>
}
