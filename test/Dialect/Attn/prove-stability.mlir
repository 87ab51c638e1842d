// RUN: saccade-opt %s --attn-prove-stability="remarks=true" --split-input-file --verify-diagnostics | FileCheck %s

// EXAMPLE
// Scores that may be infinite are guarded for every mask.
// CHECK-LABEL: func.func @plain_scores_are_guarded
func.func @plain_scores_are_guarded(%q: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // CHECK: attn.stability = "guarded"
  // expected-remark @+1 {{softmax is guarded: Q·Kᵀ may overflow to −∞}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// -----

// CHECK-LABEL: func.func @capped_scores_are_proved
func.func @capped_scores_are_proved(%q: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // CHECK: attn.stability = "every_step"
  // expected-remark @+1 {{softmax is proved stable: scores are in [-30, 30], and every query attends to every key}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] score(%s, %b, %h, %i, %j) {
      %cap = arith.constant 30.0 : f32
      %0 = arith.divf %s, %cap : f32
      %1 = math.tanh %0 : f32
      %r = arith.mulf %1, %cap : f32
      attn.yield %r : f32
    } : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// -----

// CHECK-LABEL: func.func @capped_causal_scores_are_proved_in_order
func.func @capped_causal_scores_are_proved_in_order(%q: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // CHECK: attn.stability = "in_order"
  // expected-remark @+1 {{softmax is proved stable: scores are in [-1, 1], and every query attends to the first key}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] mask causal<top_left> score(%s, %b, %h, %i, %j) {
      %r = math.tanh %s : f32
      attn.yield %r : f32
    } : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// -----

// An attribute in the input program is overwritten.
// CHECK-LABEL: func.func @a_window_may_leave_a_step_without_keys
func.func @a_window_may_leave_a_step_without_keys(%q: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // CHECK: attn.stability = "guarded"
  // expected-remark @+1 {{softmax is guarded: scores are in [-1, 1], but a query may attend to no key of a step}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] mask window<4, 0> score(%s, %b, %h, %i, %j) {
      %r = math.tanh %s : f32
      attn.yield %r : f32
    } {attn.stability = "every_step"} : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}
