// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-assign-gpu-schedule{target=sm_42}))' --verify-diagnostics

// expected-error@+1 {{unknown target 'sm_42', expected one of sm_75, sm_80}}
func.func @unknown_target(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
