// Stick-breaking has no kernels for GPUs: neither attention nor its gradient.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-assign-gpu-schedule{target=sm_80}))' --verify-diagnostics

func.func @forward(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{has the normalizer stick_breaking, which has no kernels for GPUs}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] normalizer stick_breaking
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

func.func @gradient(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{has the normalizer stick_breaking, which has no kernels for GPUs}}
  %a, %b, %c = attn.gradient %x[s,d], %x[s,d], %x[s,d] output_gradient(%x[s,d] : tensor<4x8xf32>)
    normalizer stick_breaking : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return %a : tensor<4x8xf32>
}
