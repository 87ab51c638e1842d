// Diagnostics of the verifier of attn.attention.
// RUN: saccade-opt %s -verify-diagnostics -split-input-file -allow-unregistered-dialect

func.func @rank(%q: tensor<4x8xf32>, %k: tensor<2x4x8xf32>) {
  // expected-error @+1 {{'attn.attention' op key has rank 3, but names 2 dimensions}}
  %o = attn.attention %q[s,d], %k[s,d], %q[s,d] : (tensor<4x8xf32>, tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @integers(%q: tensor<4x8xi32>) {
  // expected-error @+1 {{query has element type 'i32', expected f64, f32, f16 or bf16}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] : (tensor<4x8xi32>, tensor<4x8xi32>, tensor<4x8xi32>) -> tensor<4x8xi32>
  return
}

// -----

func.func @extended_precision(%q: tensor<4x8xf80>) {
  // expected-error @+1 {{query has element type 'f80', expected f64, f32, f16 or bf16}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] : (tensor<4x8xf80>, tensor<4x8xf80>, tensor<4x8xf80>) -> tensor<4x8xf80>
  return
}

// -----

func.func @element_types_differ(%q: tensor<4x8xf16>, %k: tensor<4x8xbf16>) {
  // expected-error @+1 {{value has element type 'bf16', but query has 'f16'}}
  %o = attn.attention %q[s,d], %q[s,d], %k[s,d] : (tensor<4x8xf16>, tensor<4x8xf16>, tensor<4x8xbf16>) -> tensor<4x8xf16>
  return
}

// -----

func.func @batch_of_keys(%q: tensor<2x4x8xf32>, %k: tensor<3x4x8xf32>) {
  // expected-error @+1 {{key has batch size 3, but query has 2}}
  %o = attn.attention %q[b,s,d], %k[b,s,d], %k[b,s,d] : (tensor<2x4x8xf32>, tensor<3x4x8xf32>, tensor<3x4x8xf32>) -> tensor<2x4x8xf32>
  return
}

// -----

func.func @batch_of_values(%q: tensor<2x4x8xf32>, %v: tensor<4x8xf32>) {
  // expected-error @+1 {{value has batch size 1, but query has 2}}
  %o = attn.attention %q[b,s,d], %q[b,s,d], %v[s,d] : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  return
}

// -----

func.func @heads_of_values(%q: tensor<4x4x8xf32>, %k: tensor<2x4x8xf32>, %v: tensor<4x4x8xf32>) {
  // expected-error @+1 {{value has head count 4, but key has 2}}
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] : (tensor<4x4x8xf32>, tensor<2x4x8xf32>, tensor<4x4x8xf32>) -> tensor<4x4x8xf32>
  return
}

// -----

func.func @length_of_values(%q: tensor<4x8xf32>, %v: tensor<5x8xf32>) {
  // expected-error @+1 {{value has length 5, but key has 4}}
  %o = attn.attention %q[s,d], %q[s,d], %v[s,d] : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<5x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @head_size_of_keys(%q: tensor<4x8xf32>, %k: tensor<4x16xf32>) {
  // expected-error @+1 {{key has head size 16, but query has 8}}
  %o = attn.attention %q[s,d], %k[s,d], %q[s,d] : (tensor<4x8xf32>, tensor<4x16xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @heads_do_not_divide(%q: tensor<6x4x8xf32>, %k: tensor<4x4x8xf32>) {
  // expected-error @+1 {{query has 6 heads, expected a multiple of the 4 KV heads}}
  %o = attn.attention %q[h,s,d], %k[h,s,d], %k[h,s,d] : (tensor<6x4x8xf32>, tensor<4x4x8xf32>, tensor<4x4x8xf32>) -> tensor<6x4x8xf32>
  return
}

// -----

func.func @queries_without_key_heads(%q: tensor<6x4x8xf32>, %k: tensor<0x4x8xf32>) {
  // expected-error @+1 {{query has 6 heads, expected a multiple of the 0 KV heads}}
  %o = attn.attention %q[h,s,d], %k[h,s,d], %k[h,s,d] : (tensor<6x4x8xf32>, tensor<0x4x8xf32>, tensor<0x4x8xf32>) -> tensor<6x4x8xf32>
  return
}

// -----

func.func @two_scales(%q: tensor<4x8xf32>, %t: f32) {
  // expected-error @+1 {{has both a constant and a run-time scale}}
  %o = "attn.attention"(%q, %q, %q, %t) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0>,
      resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0>,
      query_dims = #attn.dims<s, d>, key_dims = #attn.dims<s, d>, value_dims = #attn.dims<s, d>,
      output_dims = #attn.dims<s, d>, scale = 0.5 : f64}> ({}, {}, {})
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, f32) -> tensor<4x8xf32>
  return
}

// -----

func.func @infinite_scale(%q: tensor<4x8xf32>) {
  // expected-error @+1 {{scale is infinite in 'f32', expected a finite number}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] scale(0x7FF0000000000000)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @infinite_scale_in_f32(%q: tensor<4x8xf32>) {
  // expected-error @+1 {{scale is infinite in 'f32', expected a finite number}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] scale(1.0e39)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @scale_is_not_a_number(%q: tensor<4x8xf32>) {
  // expected-error @+1 {{scale is NaN in 'f32', expected a finite number}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] scale(0x7FF8000000000000)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @empty_queries_and_keys(%q: tensor<4x0xf32>, %v: tensor<4x8xf32>) {
  // expected-error @+1 {{query has head size 0, expected at least 1}}
  %o = attn.attention %q[s,d], %q[s,d], %v[s,d]
    : (tensor<4x0xf32>, tensor<4x0xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @empty_values(%q: tensor<4x8xf32>, %v: tensor<4x0xf32>) {
  // expected-error @+1 {{value has head size 0, expected at least 1}}
  %o = attn.attention %q[s,d], %q[s,d], %v[s,d]
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x0xf32>) -> tensor<4x0xf32>
  return
}

// -----

func.func @type_of_the_scale(%q: tensor<4x8xf16>, %t: f16) {
  // expected-error @+1 {{scale has type 'f16', expected 'f32'}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] scale(%t : f16)
    : (tensor<4x8xf16>, tensor<4x8xf16>, tensor<4x8xf16>) -> tensor<4x8xf16>
  return
}

// -----

func.func @position_of_two(%q: tensor<4x8xf32>, %i: index) {
  // expected-error @+1 {{'at' has 2 positions, expected (b, h, q, k)}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] at(%i, %i)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @captured_vector(%q: tensor<4x8xf32>, %t: vector<4xf32>) {
  // expected-error @+1 {{capture 0 has type 'vector<4xf32>', expected a scalar or a ranked tensor of scalars}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] captures(%t : vector<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @captured_tensor_without_a_rank(%q: tensor<4x8xf32>, %i: index, %t: tensor<*xf32>) {
  // expected-error @+1 {{capture 1 has type 'tensor<*xf32>', expected a scalar or a ranked tensor of scalars}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] captures(%i, %t : index, tensor<*xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @rank_of_the_output(%q: tensor<2x4x8xf32>) {
  // expected-error @+1 {{output has rank 3, but names 2 dimensions}}
  %o = attn.attention %q[b,s,d], %q[b,s,d], %q[b,s,d] out[s,d]
    : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return
}

// -----

func.func @type_of_the_output(%q: tensor<4x8xf16>) {
  // expected-error @+1 {{output has element type 'f64', expected that of the query ('f16') or 'f32'}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] : (tensor<4x8xf16>, tensor<4x8xf16>, tensor<4x8xf16>) -> tensor<4x8xf64>
  return
}

// -----

func.func @length_of_the_output(%q: tensor<4x8xf32>) {
  // expected-error @+1 {{output has length 5, but query has 4}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<5x8xf32>
  return
}

// -----

func.func @output_without_a_batch(%q: tensor<2x4x8xf32>) {
  // expected-error @+1 {{output has batch size 1, but query has 2}}
  %o = attn.attention %q[b,s,d], %q[b,s,d], %q[b,s,d] out[s,d]
    : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @head_size_of_the_output(%q: tensor<4x8xf32>, %v: tensor<4x6xf32>) {
  // expected-error @+1 {{output has head size 8, but value has 6}}
  %o = attn.attention %q[s,d], %q[s,d], %v[s,d] : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x6xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @rank_of_the_log_sum_exp(%q: tensor<2x4x8xf32>) {
  // expected-error @+1 {{log-sum-exp has rank 1, expected 2}}
  %o:2 = attn.attention %q[b,s,d], %q[b,s,d], %q[b,s,d] lse
    : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> (tensor<2x4x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @type_of_the_log_sum_exp(%q: tensor<4x8xbf16>) {
  // expected-error @+1 {{log-sum-exp has element type 'bf16', expected 'f32'}}
  %o:2 = attn.attention %q[s,d], %q[s,d], %q[s,d] lse
    : (tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<4x8xbf16>) -> (tensor<4x8xbf16>, tensor<4xbf16>)
  return
}

// -----

func.func @extent_of_the_log_sum_exp(%q: tensor<2x4x8xf32>) {
  // expected-error @+1 {{log-sum-exp has extent of 's' 2, but output has 4}}
  %o:2 = attn.attention %q[b,s,d], %q[b,s,d], %q[b,s,d] lse
    : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> (tensor<2x4x8xf32>, tensor<2x2xf32>)
  return
}

// -----

func.func @low_part_without_the_log_sum_exp(%q: tensor<4x8xf32>) {
  // expected-error @+1 {{has the low part of the log-sum-exp, expected 'lse' as well}}
  %o:2 = attn.attention %q[s,d], %q[s,d], %q[s,d] lse_low
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @batch_of_the_lengths(%q: tensor<2x4x8xf32>, %n: tensor<3xi32>) {
  // expected-error @+1 {{kv_len has batch size 3, but query has 2}}
  %o = attn.attention %q[b,s,d], %q[b,s,d], %q[b,s,d] kv_len(%n : tensor<3xi32>)
    : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return
}

// -----

func.func @type_of_the_lengths(%q: tensor<2x4x8xf32>, %n: tensor<2xf32>) {
  // expected-error @+1 {{operand #3 must be an index or one integer per batch, but got 'tensor<2xf32>'}}
  %o = attn.attention %q[b,s,d], %q[b,s,d], %q[b,s,d] q_len(%n : tensor<2xf32>)
    : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return
}

// -----

func.func @score_of_another_type(%q: tensor<4x8xf64>) {
  // expected-error @+1 {{score region has argument 0 of type 'f32', expected 'f64'}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] score(%s, %b, %h, %i, %j) {
      attn.yield %s : f32
    } : (tensor<4x8xf64>, tensor<4x8xf64>, tensor<4x8xf64>) -> tensor<4x8xf64>
  return
}

// -----

func.func @too_few_region_arguments(%q: tensor<4x8xf32>) {
  // expected-error @+1 {{score region has 1 arguments, expected 5: (s, b, h, q, k, captures...)}}
  %o = "attn.attention"(%q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0>,
      resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0>,
      query_dims = #attn.dims<s, d>, key_dims = #attn.dims<s, d>, value_dims = #attn.dims<s, d>,
      output_dims = #attn.dims<s, d>}> ({
    ^bb0(%s: f32):
      "attn.yield"(%s) : (f32) -> ()
    }, {}, {}) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @score_without_a_yield(%q: tensor<4x8xf32>) {
  // expected-error @+1 {{score region must end in attn.yield}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] score(%s, %b, %h, %i, %j) {
      "test.end"(%s) : (f32) -> ()
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @empty_score(%q: tensor<4x8xf32>) {
  // expected-error @+1 {{empty block: expect at least a terminator}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] score(%s, %b, %h, %i, %j) {
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @score_of_two_blocks(%q: tensor<4x8xf32>) {
  // expected-error @+1 {{region #0 ('score') failed to verify constraint: region with at most 1 blocks}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] score(%s, %b, %h, %i, %j) {
      cf.br ^end
    ^end:
      attn.yield %s : f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @mask_yields_a_number(%q: tensor<4x8xf32>) {
  // expected-error @+1 {{mask region yields 'index', expected 'i1'}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] mask(%b, %h, %i, %j) {
      attn.yield %j : index
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func private @elsewhere(f32) -> f32

func.func @call_in_a_region(%q: tensor<4x8xf32>) {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] score(%s, %b, %h, %i, %j) {
      // expected-error @+1 {{is not allowed in the score region of 'attn.attention', expected scalar arith and math ops, tensor.extract, tensor.dim or attn.length: a region has no side effects and calls nothing}}
      %r = func.call @elsewhere(%s) : (f32) -> f32
      attn.yield %r : f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @op_that_no_target_supports(%q: tensor<4x8xf32>) {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] score(%s, %b, %h, %i, %j) {
      // expected-error @+1 {{is not allowed in the score region of 'attn.attention', expected scalar arith and math ops, tensor.extract, tensor.dim or attn.length: no target supports it}}
      %x = math.ipowi %i, %j : index
      attn.yield %s : f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @side_effect_in_a_region(%q: tensor<4x8xf32>) {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] score(%s, %b, %h, %i, %j) {
      // expected-error @+1 {{is not allowed in the score region of 'attn.attention', expected scalar arith and math ops, tensor.extract, tensor.dim or attn.length: a region has no side effects}}
      %t = memref.alloc() : memref<f32>
      attn.yield %s : f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @capture_read_with_too_few_indices(%q: tensor<4x8xf32>, %t: tensor<4x4xf32>) {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] captures(%t : tensor<4x4xf32>) score(%s, %b, %h, %i, %j, %c) {
      // expected-error @+1 {{reads capture 0, a tensor of rank 2, with 1 index, expected one for each dimension}}
      %x = tensor.extract %c[%j] : tensor<4x4xf32>
      %r = arith.addf %s, %x : f32
      attn.yield %r : f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @unknown_op_in_a_region(%q: tensor<4x8xf32>) {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] mask(%b, %h, %i, %j) {
      // expected-error @+1 {{is not allowed in the mask region of 'attn.attention'}}
      %r = "test.unknown"() : () -> i1
      attn.yield %r : i1
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @whole_tensors_in_a_region(%q: tensor<4x8xf32>, %t: tensor<4xf32>) {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] captures(%t : tensor<4xf32>) score(%s, %b, %h, %i, %j, %c) {
      // expected-error @+1 {{is not allowed in the score region of 'attn.attention', expected scalar arith and math ops}}
      %double = arith.addf %c, %c : tensor<4xf32>
      %e = tensor.extract %double[%j] : tensor<4xf32>
      attn.yield %e : f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @value_from_outside(%q: tensor<4x8xf32>, %t: f32) {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] score(%s, %b, %h, %i, %j) {
      // expected-error @+1 {{use of a value that is not defined in the score region, expected one of its arguments or a value computed in it; captures(...) passes values from outside, constants are defined inside of the region}}
      %r = arith.addf %s, %t : f32
      attn.yield %r : f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @length_outside_a_region() -> index {
  // expected-error @+1 {{is outside of a region of attention}}
  %n = attn.length key
  return %n : index
}

// -----

func.func @yield_outside_a_region(%x: f32) {
  // expected-error @+1 {{'attn.yield' op expects parent op to be one of 'attn.attention, attn.accumulate, attn.gradient, attn.jvp, attn.weights, attn.linear'}}
  attn.yield %x : f32
}

// -----

func.func @sink_of_other_heads(%q: tensor<2x4x8xf32>, %t: tensor<3xf32>) {
  // expected-error @+1 {{sink has head count 3, but query has 2}}
  %o = attn.attention %q[h,s,d], %q[h,s,d], %q[h,s,d] sink(%t : tensor<3xf32>)
    : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return
}

// -----

func.func @sink_of_another_type(%q: tensor<2x4x8xbf16>, %t: f64) {
  // expected-error @+1 {{sink has element type 'f64', expected that of the query ('bf16') or 'f32'}}
  %o = attn.attention %q[h,s,d], %q[h,s,d], %q[h,s,d] sink(%t : f64)
    : (tensor<2x4x8xbf16>, tensor<2x4x8xbf16>, tensor<2x4x8xbf16>) -> tensor<2x4x8xbf16>
  return
}

// -----

func.func @sink_a_query(%q: tensor<2x4x8xf32>, %t: tensor<2x4xf32>) {
  // expected-error @+1 {{must be a scalar or one scalar per head, but got 'tensor<2x4xf32>'}}
  %o = attn.attention %q[h,s,d], %q[h,s,d], %q[h,s,d] sink(%t : tensor<2x4xf32>)
    : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return
}

// -----

func.func @max_of_another_shape(%q: tensor<2x4x8xf32>) {
  // expected-error @+1 {{max has extent of 's' 5, but output has 4}}
  %o, %m = attn.attention %q[h,s,d], %q[h,s,d], %q[h,s,d] max
    : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> (tensor<2x4x8xf32>, tensor<2x5xf32>)
  return
}

// -----

func.func @argmax_in_floats(%q: tensor<2x4x8xf32>) {
  // expected-error @+1 {{argmax has element type 'f32', expected 'i64'}}
  %o, %m = attn.attention %q[h,s,d], %q[h,s,d], %q[h,s,d] argmax
    : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> (tensor<2x4x8xf32>, tensor<2x4xf32>)
  return
}

// -----

func.func @tally_without_a_bin(%q: tensor<4x8xf32>) {
  // expected-error @+1 {{tally region yields 'f32', expected 'index', 'f32', a bin and a number}}
  %o, %t = attn.attention %q[s,d], %q[s,d], %q[s,d] tally<3>(%s, %b, %h, %i, %j) { attn.yield %s : f32 }
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x3xf32>)
  return
}

// -----

func.func @tally_of_bf16(%q: tensor<4x8xbf16>) {
  // expected-error @+1 {{tally 0 has element type 'bf16', expected 'f32'}}
  %o, %t = attn.attention %q[s,d], %q[s,d], %q[s,d] tally<3>(%s, %b, %h, %i, %j) { attn.yield %i, %s : index, f32 }
    : (tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<4x8xbf16>) -> (tensor<4x8xbf16>, tensor<4x3xbf16>)
  return
}

// -----

func.func @tally_without_rows(%q: tensor<4x8xf32>) {
  // expected-error @+1 {{tally 0 has rank 1, expected 2}}
  %o, %t = attn.attention %q[s,d], %q[s,d], %q[s,d] tally<3>(%s, %b, %h, %i, %j) { attn.yield %i, %s : index, f32 }
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<3xf32>)
  return
}

// -----

func.func @tally_without_bins(%q: tensor<4x8xf32>) {
  // expected-error @+1 {{tally 0 has type 'tensor<4x0xf32>', expected a static number of bins, at least 1}}
  %o, %t = attn.attention %q[s,d], %q[s,d], %q[s,d] tally<0>(%s, %b, %h, %i, %j) { attn.yield %i, %s : index, f32 }
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x0xf32>)
  return
}

// -----

func.func @weight_of_another_type(%q: tensor<4x8xf64>) {
  // expected-error @+1 {{weight region has argument 0 of type 'f32', expected 'f64'}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] weight(%p, %b, %h, %i, %j) { attn.yield %p : f32 }
    : (tensor<4x8xf64>, tensor<4x8xf64>, tensor<4x8xf64>) -> tensor<4x8xf64>
  return
}

// -----

func.func @batches_of_packed_queries(%q: tensor<2x9x8xf32>, %k: tensor<9x8xf32>, %cu: tensor<3xi32>) {
  // expected-error @+1 {{query names dimension 'b', but is ragged by cu_seqlens_q, expected its sequences contiguous along 's'}}
  %o = attn.attention %q[b,s,d], %k[s,d], %k[s,d] cu_seqlens_q(%cu : tensor<3xi32>) cu_seqlens_k(%cu : tensor<3xi32>)
    : (tensor<2x9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>) -> tensor<2x9x8xf32>
  return
}

// -----

func.func @batches_of_packed_values(%q: tensor<9x8xf32>, %v: tensor<2x9x8xf32>, %cu: tensor<3xi32>) {
  // expected-error @+1 {{value names dimension 'b', but is ragged by cu_seqlens_k}}
  %o = attn.attention %q[s,d], %q[s,d], %v[b,s,d] cu_seqlens_q(%cu : tensor<3xi32>) cu_seqlens_k(%cu : tensor<3xi32>)
    : (tensor<9x8xf32>, tensor<9x8xf32>, tensor<2x9x8xf32>) -> tensor<9x8xf32>
  return
}

// -----

func.func @number_of_sequences(%q: tensor<9x8xf32>, %cu_q: tensor<3xi32>, %cu_k: tensor<4xi32>) {
  // expected-error @+1 {{key has batch size 3, but query has 2}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] cu_seqlens_q(%cu_q : tensor<3xi32>) cu_seqlens_k(%cu_k : tensor<4xi32>)
    : (tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>) -> tensor<9x8xf32>
  return
}

// -----

func.func @packed_queries_and_one_batch_of_keys(%q: tensor<9x8xf32>, %cu: tensor<3xi32>) {
  // expected-error @+1 {{key has batch size 1, but query has 2}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] cu_seqlens_q(%cu : tensor<3xi32>)
    : (tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>) -> tensor<9x8xf32>
  return
}

// -----

func.func @lengths_of_packed(%q: tensor<9x8xf32>, %cu: tensor<3xi32>, %n: tensor<3xi32>) {
  // expected-error @+1 {{kv_len has batch size 3, but query has 2}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] kv_len(%n : tensor<3xi32>) cu_seqlens_q(%cu : tensor<3xi32>)
      cu_seqlens_k(%cu : tensor<3xi32>)
    : (tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>) -> tensor<9x8xf32>
  return
}

// -----

func.func @no_offset(%q: tensor<9x8xf32>, %cu: tensor<0xi32>) {
  // expected-error @+1 {{cu_seqlens_q has no element, expected one more than there are sequences}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] cu_seqlens_q(%cu : tensor<0xi32>) cu_seqlens_k(%cu : tensor<0xi32>)
    : (tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>) -> tensor<9x8xf32>
  return
}

// -----

func.func @type_of_offsets(%q: tensor<9x8xf32>, %cu: tensor<3xf32>) {
  // expected-error @+1 {{must be 1D tensor of 32-bit signless integer or 64-bit signless integer or index values}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] cu_seqlens_q(%cu : tensor<3xf32>) cu_seqlens_k(%cu : tensor<3xf32>)
    : (tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>) -> tensor<9x8xf32>
  return
}

// -----

func.func @type_of_products(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{has qk_type 'i4', expected i8}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] qk_type(i4)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @quantized_products_of_f64(%x: tensor<4x8xf64>) {
  // expected-error @+1 {{has qk_type i8 and inputs of f64, expected f32, f16 or bf16}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] qk_type(i8)
    : (tensor<4x8xf64>, tensor<4x8xf64>, tensor<4x8xf64>) -> tensor<4x8xf64>
  return
}
