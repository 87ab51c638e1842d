// RUN: saccade-opt %s --transform-interpreter -verify-diagnostics -split-input-file

// Targets of another kind.
func.func @queries_of_another_op(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  // expected-note @+1 {{the target}}
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    %f = transform.structured.match ops{["func.return"]} in %program : (!transform.any_op) -> !transform.any_op
    // expected-error @+1 {{transform.attn.tile_queries expected 'attn.attention' instead of 'func.return'}}
    %t:2 = transform.attn.tile_queries %f : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

func.func @keys_of_another_op(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  // expected-note @+1 {{the target}}
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    %f = transform.structured.match ops{["func.return"]} in %program : (!transform.any_op) -> !transform.any_op
    // expected-error @+1 {{transform.attn.tile_keys expected 'attn.attention' instead of 'func.return'}}
    %t = transform.attn.tile_keys %f : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}

// -----

func.func @vectors_of_another_op(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  // expected-note @+1 {{the target}}
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    %f = transform.structured.match ops{["func.return"]} in %program : (!transform.any_op) -> !transform.any_op
    // expected-error @+1 {{transform.attn.lower_accumulate expected 'attn.accumulate' instead of 'func.return'}}
    transform.attn.lower_accumulate %f : !transform.any_op
    transform.yield
  }
}

// -----

func.func @tables_of_another_op(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  // expected-note @+1 {{the target}}
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    %f = transform.structured.match ops{["func.return"]} in %program : (!transform.any_op) -> !transform.any_op
    // expected-error @+1 {{transform.attn.tabulate_relative_positions expected an op with regions of scores instead of 'func.return'}}
    transform.attn.tabulate_relative_positions %f : !transform.any_op
    transform.yield
  }
}

// -----

func.func @another_op_is_no_task(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  // expected-note @+1 {{the target}}
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    %f = transform.structured.match ops{["func.return"]} in %program : (!transform.any_op) -> !transform.any_op
    // expected-error @+1 {{transform.attn.map_to_gpu expected a task instead of 'func.return'}}
    %t = transform.attn.map_to_gpu %f : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}

// -----

func.func @another_op_is_no_kernel(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  // expected-note @+1 {{the target}}
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    %f = transform.structured.match ops{["func.return"]} in %program : (!transform.any_op) -> !transform.any_op
    // expected-error @+1 {{transform.attn.lower_attention expected a kernel instead of 'func.return'}}
    transform.attn.lower_attention %f family = "simt" : !transform.any_op
    transform.yield
  }
}

// -----

// Before the stage schedule there are no tile sizes.
func.func @tiling_needs_a_schedule(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  // expected-note @+1 {{the target}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    // expected-error @+1 {{transform.attn.tile_queries expected attention with a schedule, as there is from the stage 'schedule' on}}
    %t:2 = transform.attn.tile_queries %attention rows = 24 : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// Kernels of a CPU compute groups of 12 rows.
func.func @rows_are_whole_groups(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  // expected-note @+1 {{the target}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    // expected-error @+1 {{transform.attn.tile_queries has 25 rows, expected a multiple of 12}}
    %t:2 = transform.attn.tile_queries %attention rows = 25 : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

func.func @rows_are_positive(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    // expected-error @+1 {{attribute 'rows' failed to satisfy constraint}}
    %t:2 = transform.attn.tile_queries %attention rows = 0 : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// An op in a task is not tiled into tasks again.
func.func @tasks_are_not_nested(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  // expected-note @+1 {{the target}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    %t:2 = transform.attn.tile_queries %attention : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    // expected-error @+1 {{transform.attn.tile_queries expected attention that is not in a task}}
    %u:2 = transform.attn.tile_queries %t#0 : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

func.func @tables_are_outside_of_tasks(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  // expected-note @+1 {{the target}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    %t:2 = transform.attn.tile_queries %attention : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    // expected-error @+1 {{transform.attn.tabulate_relative_positions expected an op that is not in a task}}
    transform.attn.tabulate_relative_positions %t#0 : !transform.any_op
    transform.yield
  }
}

// -----

// A loop over keys is part of a task.
func.func @keys_are_tiled_in_a_task(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  // expected-note @+1 {{the target}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    // expected-error @+1 {{transform.attn.tile_keys expected attention in a task, as transform.attn.tile_queries creates it}}
    %u = transform.attn.tile_keys %attention : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}

// -----

// Errors of the pass are those of the step.
func.func @a_state_has_all_queries(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  // expected-note @+1 {{the target}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %attention tile_sizes [0, 0, 16] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    // expected-error @+1 {{transform.attn.tile_keys failed: 'attn.attention' op is a tile of up to 16 queries, expected at most 12, the rows of its schedule}}
    %u = transform.attn.tile_keys %t rows = 12 : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}

// -----

func.func @rows_of_a_state_are_whole_groups(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  // expected-note @+1 {{the target}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %attention tile_sizes [0, 0, 24] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    // expected-error @+1 {{transform.attn.tile_keys has 16 rows, expected a multiple of 12}}
    %u = transform.attn.tile_keys %t rows = 16 : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}

// -----

// A tile has one query head or whole groups of heads that share a KV head.
func.func @heads_that_share_in_part(%q: tensor<8x48x64xf32>, %x: tensor<4x48x64xf32>) -> tensor<8x48x64xf32> {
  // expected-error-re @+4 {{fail{{.*}} to tile operation}}
  // expected-error @+3 {{failed to generate tiling loops}}
  // expected-note @+2 {{when applied to this op}}
  // expected-error @+1 {{is tiled by query heads that share no or several KV heads in part, expected one head or whole groups}}
  %o = attn.attention %q[h,s,d], %x[h,s,d], %x[h,s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<8x48x64xf32>, tensor<4x48x64xf32>, tensor<4x48x64xf32>) -> tensor<8x48x64xf32>
  return %o : tensor<8x48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    // expected-error @+1 {{failed to apply}}
    %t, %l = transform.structured.tile_using_forall %attention tile_sizes [0, 3] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

func.func @several_heads(%q: tensor<2x8x48x64xf32>, %x: tensor<2x4x48x64xf32>) -> tensor<2x8x48x64xf32> {
  // expected-note @+1 {{the target}}
  %o = attn.attention %q[b,h,s,d], %x[b,h,s,d], %x[b,h,s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<2x8x48x64xf32>, tensor<2x4x48x64xf32>, tensor<2x4x48x64xf32>) -> tensor<2x8x48x64xf32>
  return %o : tensor<2x8x48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %attention tile_sizes [1, 2, 24] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    // expected-error @+1 {{has more than one head, expected attn-tile-queries to run first}}
    %u = transform.attn.tile_keys %t : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}

// -----

// Vector code is for ops on memory.
func.func @vectors_are_for_memory(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  // expected-note @+1 {{the target}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    %t:2 = transform.attn.tile_queries %attention : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %u = transform.attn.tile_keys %t#0 : (!transform.any_op) -> !transform.any_op
    %a = transform.structured.match ops{["attn.accumulate"]} in %u : (!transform.any_op) -> !transform.any_op
    // expected-error @+1 {{transform.attn.lower_accumulate expected an op on memory, as there is after the stage 'bufferize'}}
    transform.attn.lower_accumulate %a : !transform.any_op
    transform.yield
  }
}

// -----

// expected-note @+1 {{the target}}
func.func @kernels_are_for_a_gpu(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    %f = transform.structured.match ops{["func.func"]} in %program : (!transform.any_op) -> !transform.any_op
    // expected-error @+1 {{transform.attn.map_to_gpu expected a program for a GPU}}
    %k = transform.attn.map_to_gpu %f : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}

// -----

// expected-note @+1 {{the target}}
func.func @a_function_is_no_kernel(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    %f = transform.structured.match ops{["func.func"]} in %program : (!transform.any_op) -> !transform.any_op
    // expected-error @+1 {{transform.attn.lower_attention expected a kernel, as transform.attn.map_to_gpu creates it}}
    transform.attn.lower_attention %f family = "simt" : !transform.any_op
    transform.yield
  }
}

// -----

func.func @family_is_known(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    // expected-error @+1 {{has the unknown family 'sm_70', expected simt, sm_80 or sm_90a}}
    transform.attn.lower_attention %attention family = "sm_70" : !transform.any_op
    transform.yield
  }
}

// -----

func.func @keys_are_32_or_64(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    // expected-error @+1 {{has 48 keys of a step for the family 'sm_80', expected 32 or 64 for 'sm_80'}}
    transform.attn.lower_attention %attention family = "sm_80" keys = 48 : !transform.any_op
    transform.yield
  }
}

// -----

// Failures of steps can be suppressed: the program is as it was.
func.func @failures_can_be_suppressed(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    transform.sequence %program : !transform.any_op failures(suppress) {
    ^bb0(%p: !transform.any_op):
      %a = transform.structured.match ops{["attn.attention"]} in %p : (!transform.any_op) -> !transform.any_op
      %t:2 = transform.attn.tile_queries %a : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
        }
    transform.yield
  }
}
