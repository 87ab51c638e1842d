// RUN: saccade-opt %s -attn-tile-linear -verify-diagnostics -split-input-file

func.func @head_size(%x: tensor<4x?xf32>) -> tensor<4x?xf32> {
  // expected-error @+1 {{head size of key is dynamic, expected a static one}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] : (tensor<4x?xf32>, tensor<4x?xf32>, tensor<4x?xf32>) -> tensor<4x?xf32>
  return %o : tensor<4x?xf32>
}

// -----

func.func @empty_head(%x: tensor<4x8xf32>, %v: tensor<4x0xf32>) -> tensor<4x0xf32> {
  // expected-error @+1 {{head size of value is 0, expected at least 1}}
  %o = attn.linear %x[s,d], %x[s,d], %v[s,d] : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x0xf32>) -> tensor<4x0xf32>
  return %o : tensor<4x0xf32>
}
