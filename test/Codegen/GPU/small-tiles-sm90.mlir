// Attention in tiles of fewer rows than a warpgroup has no kernel of warpgroups.
// RUN: saccade-compile %s --target=sm_90a --emit=ptx -o - | FileCheck %s --implicit-check-not=_sm_90a
// CHECK: .visible .entry attend_attention(
func.func @attend(%q: tensor<1x2x100x64xbf16>, %k: tensor<1x2x100x64xbf16>, %v: tensor<1x2x100x64xbf16>) -> tensor<1x2x100x64xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] {schedule = #attn.schedule<rows = 32, cols = 64>}
    : (tensor<1x2x100x64xbf16>, tensor<1x2x100x64xbf16>, tensor<1x2x100x64xbf16>) -> tensor<1x2x100x64xbf16>
  return %o : tensor<1x2x100x64xbf16>
}
