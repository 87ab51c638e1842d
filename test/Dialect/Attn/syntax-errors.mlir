// Diagnostics of the parser.
// RUN: saccade-opt %s -verify-diagnostics -split-input-file -allow-unregistered-dialect

func.func @unknown_dimension(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{unknown dimension 'x', expected b, h, s or d}}
  %o = attn.attention %x[s,x], %x[s,d], %x[s,d] : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @sequence_is_not_named(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{dimensions must name 's' (sequence)}}
  %o = attn.attention %x[b,d], %x[s,d], %x[s,d] : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @depth_is_not_named(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{dimensions must name 'd' (head size)}}
  %o = attn.attention %x[s,d], %x[s], %x[s,d] : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

// expected-error @+1 {{dimension 's' is named twice}}
func.func private @dimension_is_named_twice() attributes {dims = #attn.dims<b, s, d, s>}

// -----

// expected-error @+1 {{schedule has rows 0, cols 2, depth 0, expected positive tiles}}
func.func private @empty_tile() attributes {schedule = #attn.schedule<rows = 0, cols = 2>}

// -----

func.func @into_on_attention(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'into' belongs to attn.accumulate}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] into(%x, %x, %x : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @two_results_without_lse(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{has 2 result types, expected 1: the output (a second needs 'lse', 'lse_low', 'max', 'argmax' or 'tally')}}
  %o:2 = attn.attention %x[s,d], %x[s,d], %x[s,d]
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
}

// -----

func.func @lse_without_its_type(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{has 1 result types, expected 2: output and log-sum-exp}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] lse
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @clause_given_twice(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{clause 'scale' is given twice}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] scale(0.5) scale(0.25)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @captures_after_a_region(%x: tensor<4x8xf32>, %t: f32) {
  // expected-error @+1 {{captures must come before the regions that read them}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask causal<top_left> captures(%t : f32)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @captures_without_a_type(%x: tensor<4x8xf32>, %t: f32) {
  // expected-error @+1 {{number of operands and types do not match: got 2 operands and 1 types}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%t, %t : f32)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @causal_without_alignment(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{mask 'causal' has no alignment, expected causal<top_left>, causal<bottom_right> or causal<OFFSET>}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask causal
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @causal_with_an_unknown_alignment(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{mask 'causal' has the unknown alignment 'top_right', expected causal<top_left>, causal<bottom_right> or causal<OFFSET>}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask causal<top_right>
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @causal_with_nothing_in_brackets(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{mask 'causal' has no alignment, expected causal<top_left>, causal<bottom_right> or causal<OFFSET>}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask causal<>
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @window_without_sides(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{mask 'window' has no sides, expected window<LEFT, RIGHT>, with '*' for an open side}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask window
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @window_with_one_side(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{mask 'window' has one side, expected window<LEFT, RIGHT>, with '*' for an open side}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask window<17>
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @window_without_its_right_side(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{mask 'window' has no value for RIGHT, expected window<LEFT, RIGHT>, with '*' for an open side}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask window<17, >
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @unknown_mask(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{unknown mask 'sliding', expected causal<...>, window<LEFT, RIGHT> or a region (%b, %h, %q, %k, captures...) {...}}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask sliding<3>
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @soft_cap_as_a_clause(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{unknown clause 'soft_cap' of an attention op, expected a score region, which computes it (docs/guides/scores.md)}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] soft_cap(30.0)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @causal_as_a_clause(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{unknown clause 'causal' of an attention op, expected 'mask causal<...>'}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] scale(0.5) causal
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @unknown_clause(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{unknown clause 'dilation' of an attention op, expected captures, q_len, kv_len, cu_seqlens_q, cu_seqlens_k, scale, qk_type, at, sink, mask, score, weight, normalizer, dropout, tally, lse, lse_low, max, argmax, out}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] dilation(2)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @unknown_clause_of_linear(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{unknown clause 'mask' of attn.linear, expected causal, scale, out, normalize, l2norm, feature, decay, beta, erase, state, cu_seqlens, kv_len}}
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] mask causal<top_left>
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @scale_without_a_point(%x: tensor<4x8xf32>) {
  // expected-error @+2 {{unexpected decimal integer literal for a floating point value}}
  // expected-note @+1 {{add a trailing dot to make the literal a float}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] scale(1)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @value_from_outside_of_a_mask(%x: tensor<4x8xf32>, %limit: index) {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask(%b, %h, %i, %j) {
      // expected-error @+1 {{use of a value that is not defined in the mask region, expected one of its arguments or a value computed in it; captures(...) passes values from outside, constants are defined inside of the region}}
      %holds = arith.cmpi slt, %j, %limit : index
      attn.yield %holds : i1
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @value_from_outside_of_a_tally(%x: tensor<4x8xf32>, %bin: index) {
  %o:2 = attn.attention %x[s,d], %x[s,d], %x[s,d] tally<2>(%s, %b, %h, %i, %j) {
      // expected-error @+1 {{use of a value that is not defined in the tally region}}
      attn.yield %bin, %s : index, f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x2xf32>)
}

// -----

func.func @value_from_outside_of_a_feature(%x: tensor<4x8xf32>, %t: f32) {
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] feature(%e) {
      // expected-error @+1 {{use of a value that is not defined in the feature region, expected one of its arguments or a value computed in it; constants are defined inside of the region}}
      %r = arith.mulf %e, %t : f32
      attn.yield %r : f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @window_with_a_negative_side(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{mask 'window' has RIGHT = -2, expected at least 0, or '*' for an open side}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask window<1, -2>
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @mask_region_of_too_few_arguments(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{mask region has 2 arguments, expected 4: (b, h, q, k)}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask(%i, %j) {
      %holds = arith.cmpi sle, %j, %i : index
      attn.yield %holds : i1
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @mask_region_without_its_captures(%x: tensor<4x8xf32>, %t: f32) {
  // expected-error @+1 {{mask region has 4 arguments, expected 5: (b, h, q, k, captures...)}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%t : f32) mask(%b, %h, %i, %j) {
      %holds = arith.cmpi sle, %j, %i : index
      attn.yield %holds : i1
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @score_region_of_too_many_arguments(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{score region has 6 arguments, expected 5: (s, b, h, q, k)}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] score(%s, %b, %h, %i, %j, %extra) {
      attn.yield %s : f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @joined_mask_without_a_yield(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{a mask that is joined with another must be one block that ends in attn.yield}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask causal<top_left> mask(%b, %h, %i, %j) {
      %holds = arith.cmpi sle, %j, %i : index
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @joined_masks_without_anything(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{a mask that is joined with another must be one block that ends in attn.yield}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask(%b, %h, %i, %j) {} mask(%b, %h, %i, %j) {}
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @joined_mask_that_yields_two_values(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{a mask that is joined with another must be one block that ends in attn.yield}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask causal<top_left> mask(%b, %h, %i, %j) {
      %holds = arith.cmpi sle, %j, %i : index
      "attn.yield"(%holds, %holds) : (i1, i1) -> ()
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @joined_mask_of_two_blocks(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{a mask that is joined with another must be one block that ends in attn.yield}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask causal<top_left> mask(%b, %h, %i, %j) {
      cf.br ^end
    ^end:
      %holds = arith.cmpi sle, %j, %i : index
      attn.yield %holds : i1
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @accumulate_without_destinations(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'into' has 0 destinations, expected accumulator, running max and running sum}}
  attn.accumulate %x[s,d], %x[s,d], %x[s,d] : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
}

// -----

func.func @accumulate_of_two_types(%x: tensor<4x8xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{has 2 operand types, expected those of query, key and value}}
  %r:3 = attn.accumulate %x[s,d], %x[s,d], %x[s,d]
    into(%x, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>)
}

// -----

func.func @accumulate_with_lse(%x: tensor<4x8xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{'lse', 'lse_low', 'max', 'argmax', 'out' and 'sink' belong to attn.attention; attn.finalize computes the results}}
  %r:3 = attn.accumulate %x[s,d], %x[s,d], %x[s,d] lse
    into(%x, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
}

// -----

func.func @results_that_are_missing(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{has 2 result types, expected 4: output, log-sum-exp, argmax and tally}}
  %o:2 = attn.attention %x[s,d], %x[s,d], %x[s,d] argmax lse tally<2>(%s, %b, %h, %i, %j) { attn.yield %i, %s : index, f32 }
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
}

// -----

func.func @tally_of_other_bins(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{tally 0 has 2 bins, but its result has type 'tensor<4x3xf32>'}}
  %o:2 = attn.attention %x[s,d], %x[s,d], %x[s,d] tally<2>(%s, %b, %h, %i, %j) { attn.yield %i, %s : index, f32 }
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x3xf32>)
}

// -----

func.func @two_weights(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{clause 'weight' is given twice}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] weight(%p, %b, %h, %i, %j) { attn.yield %p : f32 } weight(%p, %b, %h, %i, %j) { attn.yield %p : f32 }
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @weight_of_too_few(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{weight region has 4 arguments, expected 5: (p, b, h, q, k)}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] weight(%p, %b, %h, %i) { attn.yield %p : f32 }
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @accumulate_without_a_tally(%x: tensor<4x8xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{'into' has 3 destinations, expected accumulator, running max and running sum, a tally for each region, and optionally the row maximum and its position}}
  %r:3 = attn.accumulate %x[s,d], %x[s,d], %x[s,d] tally<2>(%s, %b, %h, %i, %j) { attn.yield %i, %s : index, f32 }
    into(%x, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
}

// -----

func.func @finalize_without_destinations(%x: tensor<4x8xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{'into' has 0 destinations after the output, expected an optional log-sum-exp and its low part, then one for each of the 1 operands of 'with'}}
  %r = attn.finalize %x, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32> with(%m : tensor<4xf32>)
    into(%x[s,d] : tensor<4x8xf32>)
}

// -----

func.func @type_of_products_in_a_gradient(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{'qk_type' belongs to attn.attention; derivatives are those of unquantized attention}}
  %g:3 = attn.gradient %x[s,d], %x[s,d], %x[s,d] qk_type(i8) output_gradient(%x[s,d] : tensor<4x8xf32>)
    lse(%l : tensor<4xf32>) delta(%l : tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}
