// Values around the keys of a sequence, in the rows of its tiles, on warpgroups: they are NaN and reach no result.
// REQUIRES: numpy
// RUN: %python -c "import numpy as np; v = np.ones((230, 2, 64), np.float16); v[20:60] = v[210:] = np.nan; np.save(r'%t.npy', v); np.save(r'%t-cu.npy', np.array([0, 60, 210, 230], np.int32))"
// RUN: saccade-run %s --entry=ragged --device=ptxsim --target=sm_90a --check --explain --arg=230x2x64:f16:1 --arg=230x2x64:f16:2 --arg=%t.npy --arg=%t-cu.npy | FileCheck %s
// RUN: %python -c "import numpy as np; v = np.ones((1, 1, 400, 64), np.float16); v[:, :, 150:] = np.nan; np.save(r'%t.npy', v)"
// RUN: saccade-run %s --entry=length --device=ptxsim --target=sm_90a --check --explain --arg=1x1x70x64:f16:1 --arg=1x1x400x64:f16:2 --arg=%t.npy | FileCheck %s

// CHECK: kernel family sm_90a, ran

// Tiles start at multiples of their width, so the first one of each sequence has 40 rows before its first key.
func.func @ragged(%q: tensor<?x2x64xf16>, %k: tensor<?x2x64xf16>, %v: tensor<?x2x64xf16>, %cu: tensor<?xi32>) -> tensor<?x2x64xf16> {
  %zero = arith.constant 0 : index
  %first = arith.constant 40 : index
  %o = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d] cu_seqlens_q(%cu : tensor<?xi32>) cu_seqlens_k(%cu : tensor<?xi32>)
    at(%zero, %zero, %zero, %first)
    : (tensor<?x2x64xf16>, tensor<?x2x64xf16>, tensor<?x2x64xf16>) -> tensor<?x2x64xf16>
  return %o : tensor<?x2x64xf16>
}

// The length is a constant, as the extent of the tensor.
func.func @length(%q: tensor<1x1x70x64xf16>, %k: tensor<1x1x400x64xf16>, %v: tensor<1x1x400x64xf16>) -> tensor<1x1x70x64xf16> {
  %length = arith.constant 150 : index
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] kv_len(%length : index)
    : (tensor<1x1x70x64xf16>, tensor<1x1x400x64xf16>, tensor<1x1x400x64xf16>) -> tensor<1x1x70x64xf16>
  return %o : tensor<1x1x70x64xf16>
}
