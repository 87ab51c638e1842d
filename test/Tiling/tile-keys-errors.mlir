// RUN: saccade-opt %s --attn-tile-keys -verify-diagnostics -split-input-file

func.func @tiling_needs_a_schedule(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  // expected-error @+1 {{has no schedule, expected attn-assign-schedule to run first}}
  %a = attn.attention %x[s,d], %x[s,d], %x[s,d] : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %a : tensor<?x64xf32>
}

// -----

func.func @head_size_must_be_static(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  // expected-error @+1 {{head size of key is dynamic, expected a static one}}
  %a = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  return %a : tensor<?x?xf32>
}

// -----

func.func @single_head_is_required(%x: tensor<3x?x64xf32>) -> tensor<3x?x64xf32> {
  // expected-error @+1 {{has more than one head, expected attn-tile-queries to run first}}
  %a = attn.attention %x[h,s,d], %x[h,s,d], %x[h,s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<3x?x64xf32>, tensor<3x?x64xf32>, tensor<3x?x64xf32>) -> tensor<3x?x64xf32>
  return %a : tensor<3x?x64xf32>
}
