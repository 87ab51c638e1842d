// Attention that has a kernel of warpgroups on sm_90a.
func.func @attend(%q: tensor<200x1x64xf16>, %k: tensor<?x1x64xf16>) -> tensor<200x1x64xf16> {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %k[s,h,d]
    : (tensor<200x1x64xf16>, tensor<?x1x64xf16>, tensor<?x1x64xf16>) -> tensor<200x1x64xf16>
  return %o : tensor<200x1x64xf16>
}
