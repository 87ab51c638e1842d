// Extreme values: overflow, traps, rounding and exhausted ranges must not give silently wrong results.

// RUN: saccade-run %s --entry=masks_that_wrap_are_evaluated --check --arg=16x16:f32:1 --arg=64x16:f32:2 --arg=64x16:f32:3
// RUN: saccade-run %s --entry=casts_to_few_bits_are_evaluated --check --arg=16x16:f32:1 --arg=300x16:f32:2 --arg=300x16:f32:3
// RUN: saccade-run %s --entry=a_sum_may_wrap --check --arg=16x16:f32:1 --arg=64x16:f32:2 --arg=64x16:f32:3 --arg=2147483647
// RUN: saccade-run %s --entry=the_largest_number_is_no_limit --check --arg=16x16:f32:1 --arg=64x16:f32:2 --arg=64x16:f32:3 --arg=9223372036854775807
// RUN: saccade-run %s --entry=a_length_of_zero_divides_nothing --check --arg=2x16x16:f32:1 --arg=2x64x16:f32:2 --arg=2x64x16:f32:3 --arg=2:i32:=0
// RUN: saccade-run %s --entry=a_score_region_sees_a_scale_of_zero --check --arg=16x16:f32:1 --arg=64x16:f32:2 --arg=64x16:f32:3
// RUN: saccade-run %s --entry=the_log_sum_exp_does_not_drift --check --arg=1x16:f32:1 --arg=200000x16:f32:=0.0 --arg=200000x16:f32:3
// RUN: saccade-run %s --target=v3 --entry=the_log_sum_exp_does_not_drift --check --arg=1x16:f32:1 --arg=200000x16:f32:=0.0 --arg=200000x16:f32:3
// RUN: saccade-run %s --entry=huge_logits_are_differences --check --arg=5x16:f32:=3.0e6 --arg=1x16:f32:=1.7e6 --arg=1x16:f32:3
// RUN: saccade-run %s --entry=huge_logits_are_differences --check --arg=5x16:f32:=3.0e6 --arg=700x16:f32:=1.7e6 --arg=700x16:f32:3
// RUN: saccade-run %s --entry=positions_far_away_touch_nothing --arg=4x16:f32:1 --arg=12x16:f32:2 --arg=12x16:f32:3 --arg=-9223372036854775808 --arg=3 | FileCheck %s
// CHECK: result #0: 4x16xf32

func.func @masks_that_wrap_are_evaluated(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d]
    mask(%b, %h, %i, %j) {
      %c = arith.constant 1640531535 : i32
      %z = arith.constant 0 : i32
      %j32 = arith.index_cast %j : index to i32
      %m = arith.muli %j32, %c : i32
      %r = arith.cmpi sgt, %m, %z : i32
      attn.yield %r : i1
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

func.func @casts_to_few_bits_are_evaluated(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d]
    mask(%b, %h, %i, %j) {
      %z = arith.constant 0 : i8
      %j8 = arith.index_cast %j : index to i8
      %r = arith.cmpi sge, %j8, %z : i8
      attn.yield %r : i1
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

func.func @a_sum_may_wrap(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xf32>, %n: i32) -> tensor<?x16xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%n : i32)
    mask(%b, %h, %i, %j, %offset) {
      %i32 = arith.index_cast %i : index to i32
      %j32 = arith.index_cast %j : index to i32
      %limit = arith.addi %i32, %offset : i32
      %r = arith.cmpi sle, %j32, %limit : i32
      attn.yield %r : i1
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

func.func @the_largest_number_is_no_limit(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xf32>, %n: i64) -> tensor<?x16xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%n : i64) mask causal<9223372036854775000>
    mask(%b, %h, %i, %j, %limit) {
      %j64 = arith.index_cast %j : index to i64
      %r = arith.cmpi sle, %j64, %limit : i64
      attn.yield %r : i1
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

func.func @a_length_of_zero_divides_nothing(%q: tensor<?x?x16xf32>, %k: tensor<?x?x16xf32>, %v: tensor<?x?x16xf32>, %n: tensor<?xi32>) -> tensor<?x?x16xf32> {
  %o = attn.attention %q[b,s,d], %k[b,s,d], %v[b,s,d] kv_len(%n : tensor<?xi32>)
    mask(%b, %h, %i, %j) {
      %all = arith.constant 640 : index
      %length = attn.length key
      %limit = arith.divsi %all, %length : index
      %r = arith.cmpi sle, %j, %limit : index
      attn.yield %r : i1
    } : (tensor<?x?x16xf32>, tensor<?x?x16xf32>, tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
  return %o : tensor<?x?x16xf32>
}

func.func @a_score_region_sees_a_scale_of_zero(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] scale(0.0)
    score(%s, %b, %h, %i, %j) {
      %zero = arith.constant 0.0 : f32
      %one = arith.constant 1.0 : f32
      %positive = arith.cmpf ogt, %s, %zero : f32
      %r = arith.select %positive, %one, %s : f32
      attn.yield %r : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

func.func @the_log_sum_exp_does_not_drift(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?xf32>) {
  %o, %lse = attn.attention %q[s,d], %k[s,d], %v[s,d] lse
    : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?xf32>)
  return %o, %lse : tensor<?x16xf32>, tensor<?xf32>
}

func.func @huge_logits_are_differences(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

func.func @positions_far_away_touch_nothing(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xf32>, %first: index, %n: index) -> tensor<?x16xf32> {
  %zero = arith.constant 0 : index
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] kv_len(%n : index) at(%zero, %zero, %first, %first) mask causal<top_left>
    : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}
