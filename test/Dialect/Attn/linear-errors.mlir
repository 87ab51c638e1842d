// Diagnostics of the verifier and parser of attn.linear.
// RUN: saccade-opt %s -verify-diagnostics -split-input-file

func.func @rank(%x: tensor<4x8xf32>, %k: tensor<2x4x8xf32>) {
  // expected-error @+1 {{key has rank 3, but names 2 dimensions}}
  %o = attn.linear %x[s,d], %k[s,d], %x[s,d] : (tensor<4x8xf32>, tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @values_are_as_many_as_keys(%x: tensor<4x8xf32>, %v: tensor<5x8xf32>) {
  // expected-error @+1 {{value has length 5, but key has 4}}
  %o = attn.linear %x[s,d], %x[s,d], %v[s,d] : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<5x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @one_length_where_causal(%x: tensor<4x8xf32>, %k: tensor<5x8xf32>, %v: tensor<5x8xf32>) {
  // expected-error @+1 {{key has length 5, but query has 4}}
  %o = attn.linear %x[s,d], %k[s,d], %v[s,d] causal : (tensor<4x8xf32>, tensor<5x8xf32>, tensor<5x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @output(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{output has head size 9, but value has 8}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x9xf32>
  return
}

// -----

func.func @output_type(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{output has element type 'f16', expected that of the query ('f32') or 'f32'}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf16>
  return
}

// -----

func.func @decay_of_nothing_that_grows(%x: tensor<4x8xf32>, %g: tensor<4xf32>) {
  // expected-error @+1 {{decay is given without 'causal', expected 'causal'}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] decay(%g[s] : tensor<4xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @decay_rank(%x: tensor<4x8xf32>, %g: tensor<4xf32>) {
  // expected-error @+1 {{decay has rank 1, but names 2 dimensions}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] causal decay(%g[s,d] : tensor<4xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @decay_extent(%x: tensor<4x8xf32>, %g: tensor<5xf32>) {
  // expected-error @+1 {{decay has length 5, but value has 4}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] causal decay(%g[s] : tensor<5xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @decay_type(%x: tensor<4x8xf32>, %g: tensor<4xi32>) {
  // expected-error @+1 {{decay has element type 'i32', expected that of the query ('f32') or 'f32'}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] causal decay(%g[s] : tensor<4xi32>) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @axis_twice(%x: tensor<4x8xf32>, %g: tensor<4x4xf32>) {
  // expected-error @+1 {{dimension 's' is named twice}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] causal decay(%g[s,s] : tensor<4x4xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @beta_of_rows(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @+1 {{beta names dimension 'd', expected at most b, h and s}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] causal beta(%g[d] : tensor<8xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @normalized_delta(%x: tensor<4x8xf32>, %g: tensor<4xf32>) {
  // expected-error @+1 {{has both 'normalize' and beta}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] causal normalize beta(%g[s] : tensor<4xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @normalized_scale(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{has both 'normalize' and a scale, expected one of them: the scale would cancel}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] normalize scale(0.5) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @state_rank(%x: tensor<4x8xf32>, %s: tensor<1x8x8xf32>) {
  // expected-error @+1 {{state has rank 3, expected 2: head size of keys, head size of values}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] state(%s : tensor<1x8x8xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @state_rows(%x: tensor<4x8xf32>, %s: tensor<4x8xf32>) {
  // expected-error @+1 {{state has rows 4, but key has 8}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] state(%s : tensor<4x8xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @state_without_its_sum(%x: tensor<4x8xf32>, %s: tensor<8x8xf32>) {
  // expected-error @+1 {{state has columns 8, but value with the column of the sum has 9}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] normalize state(%s : tensor<8x8xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @final_state(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{final state has columns 7, but value has 8}}
  %o:2 = attn.linear %x[s,d], %x[s,d], %x[s,d] : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8x7xf32>)
  return
}

// -----

func.func @results(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{has 3 result types, expected the output and optionally the final state}}
  %o:3 = attn.linear %x[s,d], %x[s,d], %x[s,d] : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>)
  return
}

// -----

func.func @twice(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{clause 'causal' is given twice}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] causal causal : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @feature_type(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{feature region has arguments 'f64', expected one 'f32'}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] feature(%y: f64) { attn.yield %y : f64 } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @feature_yield(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{feature region yields 'i32', expected 'f32'}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] feature(%y) { %c = arith.constant 1 : i32 attn.yield %c : i32 } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}


// -----

func.func @heads(%q: tensor<3x4x8xf32>, %k: tensor<2x4x8xf32>) {
  // expected-error @+1 {{query has 3 heads, expected a multiple or a divisor of the 2 heads of value}}
  %o = attn.linear %q[h,s,d], %k[h,s,d], %k[h,s,d] : (tensor<3x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<3x4x8xf32>
  return
}

// -----

func.func @key_heads(%k: tensor<3x4x8xf32>, %v: tensor<4x4x8xf32>) {
  // expected-error @+1 {{value has 4 heads, expected a multiple of the 3 heads of key}}
  %o = attn.linear %v[h,s,d], %k[h,s,d], %v[h,s,d] : (tensor<4x4x8xf32>, tensor<3x4x8xf32>, tensor<4x4x8xf32>) -> tensor<4x4x8xf32>
  return
}

// -----

func.func @output_has_the_heads_of_values(%k: tensor<2x4x8xf32>, %v: tensor<4x4x8xf32>) {
  // expected-error @+1 {{output has head count 2, but value has 4}}
  %o = attn.linear %k[h,s,d], %k[h,s,d], %v[h,s,d] : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<4x4x8xf32>) -> tensor<2x4x8xf32>
  return
}

// -----

func.func @erase_without_causal(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{erase is given without 'causal', expected 'causal'}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] erase(%x[s,d] : tensor<4x8xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @erase_depth(%x: tensor<4x8xf32>, %e: tensor<4x7xf32>) {
  // expected-error @+1 {{erase has head size 7, but key has 8}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] causal erase(%e[s,d] : tensor<4x7xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @erase_heads(%x: tensor<2x4x8xf32>, %e: tensor<3x4x8xf32>) {
  // expected-error @+1 {{value has 2 heads, expected a multiple of the 3 heads of erase}}
  %o = attn.linear %x[h,s,d], %x[h,s,d], %x[h,s,d] causal erase(%e[h,s,d] : tensor<3x4x8xf32>) : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return
}

// -----

func.func @norm(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{has l2norm -1.000000e+00, expected a finite number, at least 0}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] l2norm(-1.0) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @ragged_batches(%x: tensor<1x4x8xf32>, %c: tensor<3xi32>) {
  // expected-error @+1 {{query names dimension 'b', expected none with cu_seqlens}}
  %o = attn.linear %x[b,s,d], %x[b,s,d], %x[b,s,d] cu_seqlens(%c : tensor<3xi32>) : (tensor<1x4x8xf32>, tensor<1x4x8xf32>, tensor<1x4x8xf32>) -> tensor<1x4x8xf32>
  return
}

// -----

func.func @ragged_state(%x: tensor<4x8xf32>, %c: tensor<3xi32>, %s: tensor<3x8x8xf32>) {
  // expected-error @+1 {{state has batch size 3, but value has 2}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] cu_seqlens(%c : tensor<3xi32>) state(%s : tensor<3x8x8xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @ragged_and_lengths(%x: tensor<4x8xf32>, %c: tensor<3xi32>) {
  // expected-error @+1 {{has both cu_seqlens and kv_len, expected one of them}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] cu_seqlens(%c : tensor<3xi32>) kv_len(%c : tensor<3xi32>) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @gradient_without_output(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{has no output gradient, expected 'output_gradient(...)'}}
  %o:3 = attn.linear_gradient %x[s,d], %x[s,d], %x[s,d] : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @gradient_results(%x: tensor<4x8xf32>, %g: tensor<4xf32>) {
  // expected-error @+1 {{has 3 result types, expected 4, one for each operand whose gradient it computes}}
  %o:3 = attn.linear_gradient %x[s,d], %x[s,d], %x[s,d] causal decay(%g[s] : tensor<4xf32>) output_gradient(%x[s,d] : tensor<4x8xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}
