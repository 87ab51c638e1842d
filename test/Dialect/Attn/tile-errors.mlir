// Diagnostics of the verifiers of the tile ops.
// RUN: saccade-opt %s -verify-diagnostics -split-input-file

func.func @tile_of_three_dimensions(%q: tensor<1x4x8xf32>, %k: tensor<4x8xf32>, %acc: tensor<4x8xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{query tile names 3 dimensions, expected s and d}}
  %r:3 = attn.accumulate %q[h,s,d], %k[s,d], %k[s,d] into(%acc, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    : (tensor<1x4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @tile_with_batches(%q: tensor<1x2x4x8xf32>, %k: tensor<4x8xf32>, %acc: tensor<8x8xf32>, %m: tensor<8xf32>) {
  // expected-error @+1 {{query tile names 4 dimensions, expected h, s and d}}
  %r:3 = attn.accumulate %q[b,h,s,d], %k[s,d], %k[s,d] into(%acc, %m, %m : tensor<8x8xf32>, tensor<8xf32>, tensor<8xf32>)
    {unpacked} : (tensor<1x2x4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @rows_of_all_heads(%q: tensor<3x4x8xf32>, %k: tensor<4x8xf32>, %acc: tensor<8x8xf32>, %m: tensor<8xf32>) {
  // expected-error @+1 {{query has 12 rows, but accumulator has 8}}
  %r:3 = attn.accumulate %q[h,s,d], %k[s,d], %k[s,d] into(%acc, %m, %m : tensor<8x8xf32>, tensor<8xf32>, tensor<8xf32>)
    {unpacked} : (tensor<3x4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @rank_of_the_accumulator(%q: tensor<4x8xf32>, %acc: tensor<1x4x8xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{accumulator has rank 3, expected 2}}
  %r:3 = attn.accumulate %q[s,d], %q[s,d], %q[s,d] into(%acc, %m, %m : tensor<1x4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @accumulator_in_half_precision(%q: tensor<4x8xf16>, %acc: tensor<4x8xf16>, %m: tensor<4xf16>) {
  // expected-error @+1 {{accumulator has element type 'f16', expected f32 or f64}}
  %r:3 = attn.accumulate %q[s,d], %q[s,d], %q[s,d] into(%acc, %m, %m : tensor<4x8xf16>, tensor<4xf16>, tensor<4xf16>)
    : (tensor<4x8xf16>, tensor<4x8xf16>, tensor<4x8xf16>)
  return
}

// -----

func.func @accumulator_narrower_than_the_scores(%q: tensor<4x8xf64>, %acc: tensor<4x8xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{accumulator has element type 'f32', expected 'f64'}}
  %r:3 = attn.accumulate %q[s,d], %q[s,d], %q[s,d] into(%acc, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    : (tensor<4x8xf64>, tensor<4x8xf64>, tensor<4x8xf64>)
  return
}

// -----

func.func @rank_of_the_sum(%q: tensor<4x8xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{running sum has rank 2, expected 1}}
  %r:3 = attn.accumulate %q[s,d], %q[s,d], %q[s,d] into(%q, %m, %q : tensor<4x8xf32>, tensor<4xf32>, tensor<4x8xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @type_of_the_max(%q: tensor<4x8xf32>, %m: tensor<4xf64>, %s: tensor<4xf32>) {
  // expected-error @+1 {{running max has element type 'f64', but accumulator has 'f32'}}
  %r:3 = attn.accumulate %q[s,d], %q[s,d], %q[s,d] into(%q, %m, %s : tensor<4x8xf32>, tensor<4xf64>, tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @rows_of_the_max(%q: tensor<4x8xf32>, %m: tensor<5xf32>, %s: tensor<4xf32>) {
  // expected-error @+1 {{running max has rows 5, but accumulator has 4}}
  %r:3 = attn.accumulate %q[s,d], %q[s,d], %q[s,d] into(%q, %m, %s : tensor<4x8xf32>, tensor<5xf32>, tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @more_queries_than_rows(%q: tensor<6x8xf32>, %acc: tensor<4x8xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{query has 6 rows, but accumulator has 4}}
  %r:3 = attn.accumulate %q[s,d], %q[s,d], %q[s,d] into(%acc, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    : (tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>)
  return
}

// -----

func.func @wider_values_than_columns(%q: tensor<4x8xf32>, %acc: tensor<4x6xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{value has head size 8, but accumulator has 6 columns}}
  %r:3 = attn.accumulate %q[s,d], %q[s,d], %q[s,d] into(%acc, %m, %m : tensor<4x6xf32>, tensor<4xf32>, tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @operands_are_checked_as_in_attention(%q: tensor<4x8xf32>, %k: tensor<4x6xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{'attn.accumulate' op key has head size 6, but query has 8}}
  %r:3 = attn.accumulate %q[s,d], %k[s,d], %q[s,d] into(%q, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x6xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @regions_are_checked_as_in_attention(%q: tensor<4x8xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{'attn.accumulate' op mask region yields 'index', expected 'i1'}}
  %r:3 = attn.accumulate %q[s,d], %q[s,d], %q[s,d] into(%q, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    mask(%b, %h, %i, %j) { attn.yield %j : index } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @a_result_for_each_tensor(%q: tensor<4x8xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{expected the number of tensor results (2) to be equal to the number of output tensors (3)}}
  %r:2 = attn.merge(%q, %m, %m) into(%q, %m, %m)
    : (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    -> (tensor<4x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @states_of_different_types(%x: tensor<4x8xf32>, %m: tensor<4xf32>, %y: tensor<4x8xf64>, %n: tensor<4xf64>) {
  // expected-error @+1 {{other state has element type 'f64', but state has 'f32'}}
  %r:3 = attn.merge(%y, %n, %n) into(%x, %m, %m)
    : (tensor<4x8xf64>, tensor<4xf64>, tensor<4xf64>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    -> (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @states_of_different_rows(%x: tensor<4x8xf32>, %m: tensor<4xf32>, %y: tensor<5x8xf32>, %n: tensor<5xf32>) {
  // expected-error @+1 {{other state has rows 5, but state has 4}}
  %r:3 = attn.merge(%y, %n, %n) into(%x, %m, %m)
    : (tensor<5x8xf32>, tensor<5xf32>, tensor<5xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    -> (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @states_of_different_head_sizes(%x: tensor<4x8xf32>, %m: tensor<4xf32>, %y: tensor<4x9xf32>) {
  // expected-error @+1 {{other state has head size 9, but state has 8}}
  %r:3 = attn.merge(%y, %m, %m) into(%x, %m, %m)
    : (tensor<4x9xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    -> (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @rank_of_the_output_tile(%x: tensor<4x8xf32>, %m: tensor<4xf32>, %out: tensor<1x4x8xf32>) {
  // expected-error @+1 {{output tile has rank 3, expected s and d}}
  %r = attn.finalize %x, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32> into(%out[s,d] : tensor<1x4x8xf32>)
  return
}

// -----

func.func @type_of_the_output_tile(%x: tensor<4x8xf32>, %m: tensor<4xf32>, %out: tensor<4x8xi8>) {
  // expected-error @+1 {{output tile has element type 'i8', expected f64, f32, f16 or bf16}}
  %r = attn.finalize %x, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32> into(%out[s,d] : tensor<4x8xi8>)
  return
}

// -----

func.func @output_tile_of_more_rows(%x: tensor<4x8xf32>, %m: tensor<4xf32>, %out: tensor<8x5xf32>) {
  // expected-error @+1 {{output has 5 rows, but accumulator has 4}}
  %r = attn.finalize %x, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32> into(%out[d,s] : tensor<8x5xf32>)
  return
}

// -----

func.func @output_tile_of_more_columns(%x: tensor<4x8xf32>, %m: tensor<4xf32>, %out: tensor<4x9xf32>) {
  // expected-error @+1 {{output has head size 9, but accumulator has 8 columns}}
  %r = attn.finalize %x, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32> into(%out[s,d] : tensor<4x9xf32>)
  return
}

// -----

func.func @rank_of_the_log_sum_exp(%x: tensor<4x8xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{log-sum-exp tile has rank 2, expected 1}}
  %r:2 = attn.finalize %x, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>
    into(%x[s,d] : tensor<4x8xf32>, %x : tensor<4x8xf32>)
  return
}

// -----

func.func @type_of_the_log_sum_exp(%x: tensor<4x8xf32>, %m: tensor<4xf32>, %lse: tensor<4xf16>) {
  // expected-error @+1 {{log-sum-exp tile has element type 'f16', but accumulator has 'f32'}}
  %r:2 = attn.finalize %x, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>
    into(%x[s,d] : tensor<4x8xf32>, %lse : tensor<4xf16>)
  return
}

// -----

func.func @low_part_of_the_log_sum_exp_without_natural_maxima(%x: tensor<4x8xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{has the low part of the log-sum-exp, expected 'natural_max'}}
  %o:3 = attn.finalize %x, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>
    into(%x[s,d] : tensor<4x8xf32>, %m : tensor<4xf32>, %m : tensor<4xf32>)
  return
}

// -----

func.func @rows_of_the_log_sum_exp(%x: tensor<4x8xf32>, %m: tensor<4xf32>, %lse: tensor<3xf32>) {
  // expected-error @+1 {{log-sum-exp tile has rows 3, but output has 4}}
  %r:2 = attn.finalize %x, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>
    into(%x[s,d] : tensor<4x8xf32>, %lse : tensor<3xf32>)
  return
}

// -----

func.func @launch_of_nothing(%n: index) {
  // expected-error @+1 {{task 'nowhere' is not a function of this module}}
  attn.launch @nowhere() count(%n)
  return
}

// -----

func.func private @task(index, index, memref<?xi8>) -> index

func.func @launch_of_a_task_with_results(%n: index) {
  // expected-error @+1 {{task 'task' has 1 results, expected none}}
  attn.launch @task() count(%n)
  return
}

// -----

func.func private @task(index, index)

func.func @launch_of_a_task_without_scratch(%n: index) {
  // expected-error @+1 {{task 'task' has 2 arguments, expected 3: (captures..., begin, end, scratch)}}
  attn.launch @task() count(%n)
  return
}

// -----

func.func private @task(f32, index, index, memref<?xi8>)

func.func @launch_with_another_capture(%n: index) {
  // expected-error @+1 {{task 'task' has argument 0 of type 'f32', expected 'index'}}
  attn.launch @task(%n) count(%n) : (index)
  return
}

// -----

func.func @accumulate_with_bins_of_other_rows(%x: tensor<4x8xf32>, %m: tensor<4xf32>, %t: tensor<5x2xf32>) {
  // expected-error @+1 {{tally 0 has rows 5, but accumulator has 4}}
  %r:4 = attn.accumulate %x[s,d], %x[s,d], %x[s,d]
    into(%x, %m, %m, %t : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<5x2xf32>)
    tally<2>(%s, %b, %h, %i, %j) { attn.yield %i, %s : index, f32 }
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @accumulate_with_positions_in_i32(%x: tensor<4x8xf32>, %m: tensor<4xf32>, %p: tensor<4xi32>) {
  // expected-error @+1 {{position has element type 'i32', expected 'i64'}}
  %r:5 = attn.accumulate %x[s,d], %x[s,d], %x[s,d]
    into(%x, %m, %m, %m, %p : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xi32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

// Sums, differences, quotients and selects keep proportionality; a square does not.
func.func @accumulate_with_squared_weights(%x: tensor<4x8xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{has a weight region that is not proved proportional to its argument, expected 'final'}}
  %r:3 = attn.accumulate %x[s,d], %x[s,d], %x[s,d]
    into(%x, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    weight(%p, %b, %h, %i, %j) {
      %y = arith.mulf %p, %p : f32
      attn.yield %y : f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @final_accumulate_without_weights(%x: tensor<4x8xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{is final, expected a weight region, no tallies and no row maxima}}
  %r:3 = attn.accumulate %x[s,d], %x[s,d], %x[s,d]
    into(%x, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>) {final}
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @finalize_of_other_bins(%x: tensor<4x8xf32>, %m: tensor<4xf32>, %t: tensor<4x2xf32>, %u: tensor<4x3xf32>) {
  // expected-error @+1 {{result 0 of 'with' has bins 3, but state has 2}}
  %r:2 = attn.finalize %x, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32> with(%t : tensor<4x2xf32>)
    into(%x[s,d] : tensor<4x8xf32>, %u : tensor<4x3xf32>)
  return
}
