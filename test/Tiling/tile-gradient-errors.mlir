// RUN: saccade-opt %s -attn-tile-gradient -verify-diagnostics -split-input-file

func.func @schedule(%x: tensor<?x8xf32>, %l: tensor<?xf32>) -> tensor<?x8xf32> {
  // expected-error @+1 {{has no schedule, expected attn-assign-schedule to run first}}
  %r:3 = attn.gradient %x[s,d], %x[s,d], %x[s,d] output_gradient(%x[s,d] : tensor<?x8xf32>) lse(%l : tensor<?xf32>) delta(%l : tensor<?xf32>)
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  return %r#0 : tensor<?x8xf32>
}

// -----

func.func @head_size(%x: tensor<4x?xf32>, %l: tensor<4xf32>) -> tensor<4x?xf32> {
  // expected-error @+1 {{head size of key is dynamic, expected a static one}}
  %r:3 = attn.gradient %x[s,d], %x[s,d], %x[s,d] output_gradient(%x[s,d] : tensor<4x?xf32>) lse(%l : tensor<4xf32>) delta(%l : tensor<4xf32>)
    : (tensor<4x?xf32>, tensor<4x?xf32>, tensor<4x?xf32>) -> (tensor<4x?xf32>, tensor<4x?xf32>, tensor<4x?xf32>)
  return %r#0 : tensor<4x?xf32>
}
