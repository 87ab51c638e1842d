// The compiler refuses head sizes beyond its limit, for every kind of target.
// RUN: not saccade-compile %s --target=v3 --emit=mlir -o - 2>&1 | FileCheck %s
// RUN: not saccade-compile %s --target=sm_80 --emit=mlir -o - 2>&1 | FileCheck %s
// CHECK: error: 'attn.attention' op head size of key is 8200, expected at most 8192

func.func @large_head(%q: tensor<1x8200xf32>, %v: tensor<1x8xf32>) -> tensor<1x8xf32> {
  %o = attn.attention %q[s,d], %q[s,d], %v[s,d] : (tensor<1x8200xf32>, tensor<1x8200xf32>, tensor<1x8xf32>) -> tensor<1x8xf32>
  return %o : tensor<1x8xf32>
}
