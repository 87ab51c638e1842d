// Only the last of the warps that split a tile of keys has visible ones: the maxima of all warps are merged.
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --check --explain --arg=1x2x1x64:f16:1 --arg=1x1x640x64:f16:2 --arg=1x1x640x64:f16:3 | FileCheck %s

// CHECK: kernel family sm_80, split-KV, ran

func.func @last_keys(%q: tensor<1x2x1x64xf16>, %k: tensor<1x1x640x64xf16>, %v: tensor<1x1x640x64xf16>) -> tensor<1x2x1x64xf16> {
  %zero = arith.constant 0 : index
  %last = arith.constant 639 : index
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] at(%zero, %zero, %last, %zero) mask window<4, *>
    : (tensor<1x2x1x64xf16>, tensor<1x1x640x64xf16>, tensor<1x1x640x64xf16>) -> tensor<1x2x1x64xf16>
  return %o : tensor<1x2x1x64xf16>
}
