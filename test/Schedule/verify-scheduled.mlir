// RUN: saccade-opt %s --attn-verify-scheduled -verify-diagnostics -split-input-file

// EXAMPLE
func.func @attention_needs_a_schedule(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  // expected-error @+1 {{has no schedule after the schedule stage}}
  %a = attn.attention %x[s,d], %x[s,d], %x[s,d] : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %a : tensor<?x64xf32>
}

// -----

func.func @matmuls_need_a_schedule(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>, %init: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @+1 {{has no schedule after the schedule stage}}
  %a = linalg.matmul ins(%x, %w : tensor<?x8xf32>, tensor<8x8xf32>) outs(%init : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %a : tensor<?x8xf32>
}

// -----

func.func @elementwise_ops_need_none(%x: tensor<?xf32>) -> tensor<?xf32> {
  %a = linalg.exp ins(%x : tensor<?xf32>) outs(%x : tensor<?xf32>) -> tensor<?xf32>
  return %a : tensor<?xf32>
}

// -----

func.func @head_size_is_limited(%q: tensor<?x8xf32>, %v: tensor<?x9000xf32>) -> tensor<?x9000xf32> {
  // expected-error @+1 {{head size of value is 9000, expected at most 8192}}
  %a = attn.attention %q[s,d], %q[s,d], %v[s,d] : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x9000xf32>) -> tensor<?x9000xf32>
  return %a : tensor<?x9000xf32>
}

// -----

func.func @largest_head_size(%q: tensor<?x8192xf32>) -> tensor<?x8192xf32> {
  %a = attn.attention %q[s,d], %q[s,d], %q[s,d] {schedule = #attn.schedule<rows = 72, cols = 64>} : (tensor<?x8192xf32>, tensor<?x8192xf32>, tensor<?x8192xf32>) -> tensor<?x8192xf32>
  return %a : tensor<?x8192xf32>
}

// -----

func.func @keys_beyond_the_largest_head_size(%q: tensor<?x8193xf32>, %v: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @+1 {{head size of key is 8193, expected at most 8192}}
  %a = attn.attention %q[s,d], %q[s,d], %v[s,d] : (tensor<?x8193xf32>, tensor<?x8193xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %a : tensor<?x8xf32>
}

// -----

func.func @dynamic_head_size(%q: tensor<?x?xf32>, %v: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @+1 {{head size of key is dynamic, expected a static one}}
  %a = attn.attention %q[s,d], %q[s,d], %v[s,d] : (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %a : tensor<?x8xf32>
}

// -----

func.func @dynamic_head_size_of_a_gradient(%q: tensor<?x?xf32>, %lse: tensor<?xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>) {
  // expected-error @+1 {{head size of key is dynamic, expected a static one}}
  %dq, %dk, %dv = attn.gradient %q[s,d], %q[s,d], %q[s,d] lse(%lse : tensor<?xf32>) delta(%lse : tensor<?xf32>) output_gradient(%q[s,d] : tensor<?x?xf32>)
    : (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>)
  return %dq, %dk, %dv : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>
}
