// RUN: saccade-opt %s --attn-update-facts | FileCheck %s

// The mask hides the first key, so that the claim no longer holds.
// CHECK-LABEL: @a_mask_invalidates_the_proof
// CHECK: attn.stability = "guarded"
func.func @a_mask_invalidates_the_proof(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d]
      mask(%b, %h, %q, %k) {
        %visible = arith.cmpi slt, %k, %q : index
        attn.yield %visible : i1
      }
      score(%s, %b, %h, %q, %k) {
        %r = math.tanh %s : f32
        attn.yield %r : f32
      } {attn.stability = "every_step"} : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// EXAMPLE
// An op that is not analyzed yet is left alone, and a weak claim becomes as strong as the proof.
// CHECK-LABEL: @a_claim_is_as_strong_as_the_proof
// CHECK-NOT: attn.stability
// CHECK: attn.attention {{.*}} : (tensor<?x8xf32>
// CHECK: attn.stability = "every_step"
func.func @a_claim_is_as_strong_as_the_proof(%x: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %a = attn.attention %x[s,d], %x[s,d], %x[s,d] : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %b = attn.attention %x[s,d], %x[s,d], %x[s,d]
      score(%s, %b, %h, %q, %k) {
        %r = math.tanh %s : f32
        attn.yield %r : f32
      } {attn.stability = "guarded"} : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %a, %b : tensor<?x8xf32>, tensor<?x8xf32>
}

// Steps in order begin with the key at position 0. A step that may be taken alone needs every key.
// CHECK-LABEL: @a_step_keeps_what_its_regions_prove
// CHECK: attn.accumulate
// CHECK: {attn.finite_max = "in_order",
// CHECK: attn.accumulate
// CHECK: {schedule
func.func @a_step_keeps_what_its_regions_prove(%x: tensor<8x8xf32>, %acc: tensor<12x16xf32>, %max: tensor<12xf32>) -> tensor<12x16xf32> {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %s:3 = attn.accumulate %x[s,d], %x[s,d], %x[s,d] q_len(%c8 : index) kv_len(%c8 : index) at(%c0, %c0, %c0, %c0) into(%acc, %max, %max : tensor<12x16xf32>, tensor<12xf32>, tensor<12xf32>)
      mask(%b, %h, %q, %k) {
        %visible = arith.cmpi sle, %k, %q : index
        attn.yield %visible : i1
      }
      score(%s, %b, %h, %q, %k) {
        %r = math.tanh %s : f32
        attn.yield %r : f32
      } {attn.finite_max = "in_order", schedule = #attn.schedule<rows = 12, cols = 512>} : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>)
  %t:3 = attn.accumulate %x[s,d], %x[s,d], %x[s,d] q_len(%c8 : index) kv_len(%c8 : index) at(%c0, %c0, %c0, %c0) into(%s#0, %s#1, %s#2 : tensor<12x16xf32>, tensor<12xf32>, tensor<12xf32>)
      mask(%b, %h, %q, %k) {
        %visible = arith.cmpi sle, %k, %q : index
        attn.yield %visible : i1
      }
      score(%s, %b, %h, %q, %k) {
        %r = math.tanh %s : f32
        attn.yield %r : f32
      } {attn.finite_max = "every_step", schedule = #attn.schedule<rows = 12, cols = 512>} : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>)
  return %t#0 : tensor<12x16xf32>
}
