// RUN: saccade-opt %s --attn-tile-queries -verify-diagnostics

func.func @tiling_needs_a_schedule(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  // expected-error @+1 {{has no schedule, expected attn-assign-schedule to run first}}
  %a = attn.attention %x[s,d], %x[s,d], %x[s,d] : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %a : tensor<?x64xf32>
}
