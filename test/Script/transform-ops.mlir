// RUN: saccade-opt %s --transform-interpreter -canonicalize -cse -split-input-file | FileCheck %s

// The sizes of a script replace those of the schedule: two tasks of 24 queries, steps of 32 keys.
// CHECK-LABEL: @tiles
// CHECK: scf.forall {{.*}} to (1, 1, 48) step (1, 1, 24)
// CHECK: scf.for {{.*}} step %[[STEP:.*]] iter_args({{.*}} -> (tensor<24x64xf32>, tensor<24xf32>, tensor<24xf32>)
// CHECK: attn.accumulate {{.*}}#attn.schedule<rows = 24, cols = 32>
// CHECK: attn.finalize
// CHECK-NOT: = attn.attention
func.func @tiles(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 288, cols = 512>}
      : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    %tiles, %tasks = transform.attn.tile_queries %attention rows = 24 : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %loops = transform.attn.tile_keys %tiles cols = 32 : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}

// -----

// Without sizes, those of the schedule are taken. Both loops of split-KV are tasks; there is no attention to tile in them.
// CHECK-LABEL: @split_kv
// CHECK: scf.forall
// CHECK: attn.accumulate {{.*}}unpacked
// CHECK: } {first, mapping
// CHECK: scf.forall
// CHECK: attn.merge
// CHECK: } {last, mapping
func.func @split_kv(%q: tensor<8x1x64xf32>, %x: tensor<2x?x64xf32>) -> tensor<8x1x64xf32> {
  %o = attn.attention %q[h,s,d], %x[h,s,d], %x[h,s,d] {schedule = #attn.schedule<rows = 288, cols = 512>, split_kv = #attn.split_kv<queries = 8, rows = 12, cols = 1024>}
      : (tensor<8x1x64xf32>, tensor<2x?x64xf32>, tensor<2x?x64xf32>) -> tensor<8x1x64xf32>
  return %o : tensor<8x1x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    %tiles, %tasks = transform.attn.tile_queries %attention : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %first, %last = transform.split_handle %tasks : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.annotate %first "first" : !transform.any_op
    transform.annotate %last "last" : !transform.any_op
    %loops = transform.attn.tile_keys %tiles : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}

// -----

// Upstream ops tile attention through its interface, into tasks of another shape. A state has as many rows as a tile.
// CHECK-LABEL: @upstream
// CHECK: scf.forall (%{{.*}}) in (2)
// CHECK: scf.for %{{.*}} = %{{.*}} to %[[FOUR:.*]] step
// CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step
// CHECK: scf.for {{.*}} -> (tensor<12x64xf32>, tensor<12xf32>, tensor<12xf32>)
func.func @upstream(%q: tensor<8x48x64xf32>, %x: tensor<2x?x64xf32>) -> tensor<8x48x64xf32> {
  %o = attn.attention %q[h,s,d], %x[h,s,d], %x[h,s,d] {schedule = #attn.schedule<rows = 288, cols = 512>}
      : (tensor<8x48x64xf32>, tensor<2x?x64xf32>, tensor<2x?x64xf32>) -> tensor<8x48x64xf32>
  return %o : tensor<8x48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    %group, %task = transform.structured.tile_using_forall %attention tile_sizes [0, 4] (mapping = [#attn.task<0>])
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %tile, %heads, %chunks = transform.structured.tile_using_for %group tile_sizes [0, 1, 12]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %loops = transform.attn.tile_keys %tile rows = 12 : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}

// -----

// The buckets of relative positions are a table before the task.
// CHECK-LABEL: @tables
// CHECK: linalg.generic
// CHECK: math.log
// CHECK: scf.forall
// CHECK-NOT: math.log
func.func @tables(%x: tensor<48x64xf32>) -> tensor<48x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d]
    score(%s, %b, %h, %q, %k) {
      %one = arith.constant 1 : index
      %distance = arith.subi %k, %q : index
      %squared = arith.muli %distance, %distance : index
      %positive = arith.addi %squared, %one : index
      %bits = arith.index_cast %positive : index to i32
      %number = arith.sitofp %bits : i32 to f32
      %log = math.log %number : f32
      %r = arith.subf %s, %log : f32
      attn.yield %r : f32
    } {schedule = #attn.schedule<rows = 288, cols = 512>}
      : (tensor<48x64xf32>, tensor<48x64xf32>, tensor<48x64xf32>) -> tensor<48x64xf32>
  return %o : tensor<48x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    transform.attn.tabulate_relative_positions %attention : !transform.any_op
    %tiles, %tasks = transform.attn.tile_queries %attention : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
