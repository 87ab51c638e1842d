// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-assign-kernel-schedule{target=sm_80}))' --verify-diagnostics

func.func @adds_up(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'linalg.add' op is not attention; programs for a GPU do not support anything else yet}}
  %z = linalg.add ins(%x, %y : tensor<4xf32>, tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return %z : tensor<4xf32>
}
