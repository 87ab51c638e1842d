// Diagnostics of the parser and verifier of attn.weights.
// RUN: saccade-opt %s -verify-diagnostics -split-input-file

func.func @no_lse(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{has no clause 'lse(...)'}}
  %w = attn.weights %x[s,d], %x[s,d] lse : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @ragged(%x: tensor<4x8xf32>, %l: tensor<4xf32>, %c: tensor<3xi32>) {
  // expected-error @+1 {{attn.weights has no ragged batches, expected slices of one sequence in place of 'cu_seqlens_q' and 'cu_seqlens_k'}}
  %w = attn.weights %x[s,d], %x[s,d] lse(%l : tensor<4xf32>) cu_seqlens_q(%c : tensor<3xi32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @sink(%x: tensor<4x8xf32>, %l: tensor<4xf32>, %s: f32) {
  // expected-error @+1 {{'sink' does not belong to attn.weights; the log-sum-exp includes a sink}}
  %w = attn.weights %x[s,d], %x[s,d] lse(%l : tensor<4xf32>) sink(%s : f32)
    : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @argmax(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{'argmax' does not belong to attn.weights}}
  %w = attn.weights %x[s,d], %x[s,d] lse(%l : tensor<4xf32>) argmax : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @delta(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{'delta' belongs to attn.gradient}}
  %w = attn.weights %x[s,d], %x[s,d] lse(%l : tensor<4xf32>) delta(%l : tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @quantized(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{'qk_type' belongs to attn.attention; weights are those of unquantized attention}}
  %w = attn.weights %x[s,d], %x[s,d] lse(%l : tensor<4xf32>) qk_type(i8) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @rows(%x: tensor<4x8xf32>, %l: tensor<5xf32>) {
  // expected-error @+1 {{log-sum-exp has extent of 's' 5, but query has 4}}
  %w = attn.weights %x[s,d], %x[s,d] lse(%l : tensor<5xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @low(%x: tensor<4x8xf32>, %l: tensor<4xf32>, %r: tensor<4xf64>) {
  // expected-error @+1 {{low part of the log-sum-exp has element type 'f64', expected 'f32'}}
  %w = attn.weights %x[s,d], %x[s,d] lse(%l : tensor<4xf32>) lse_low(%r : tensor<4xf64>)
    : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @element(%x: tensor<4x8xf16>, %l: tensor<4xf32>) {
  // expected-error @+1 {{result has element type 'f16', expected 'f32'}}
  %w = attn.weights %x[s,d], %x[s,d] lse(%l : tensor<4xf32>) : (tensor<4x8xf16>, tensor<4x8xf16>) -> tensor<4x4xf16>
  return
}

// -----

func.func @rank(%x: tensor<2x4x8xf32>, %l: tensor<2x4xf32>) {
  // expected-error @+1 {{result has rank 2, expected 3}}
  %w = attn.weights %x[h,s,d], %x[h,s,d] lse(%l : tensor<2x4xf32>)
    : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @queries(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{result has length 5, but query has 4}}
  %w = attn.weights %x[s,d], %x[s,d] lse(%l : tensor<4xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<5x4xf32>
  return
}

// -----

func.func @keys(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{result has keys 5, but key has 4}}
  %w = attn.weights %x[s,d], %x[s,d] lse(%l : tensor<4xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x5xf32>
  return
}

// -----

func.func @groups(%q: tensor<3x4x8xf32>, %k: tensor<2x4x8xf32>, %l: tensor<3x4xf32>) {
  // expected-error @+1 {{query has 3 heads, expected a multiple of the 2 KV heads}}
  %w = attn.weights %q[h,s,d], %k[h,s,d] lse(%l : tensor<3x4xf32>) : (tensor<3x4x8xf32>, tensor<2x4x8xf32>) -> tensor<3x4x4xf32>
  return
}

// -----

func.func @region(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{score region yields 'index', expected 'f32'}}
  %w = attn.weights %x[s,d], %x[s,d] lse(%l : tensor<4xf32>) score(%s, %b, %h, %i, %j) {
      attn.yield %j : index
    } : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  return
}
