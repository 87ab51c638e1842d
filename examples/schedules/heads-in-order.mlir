// A schedule of attention as a script: saccade-run PROGRAM --transform-script=examples/schedules/heads-in-order.mlir
//
// One task computes all queries of a KV head: its query heads one after another, and of each the tiles of 48 queries in
// order, in steps of 64 keys. Keys and values then stay in the cache of the core that runs the task. Without the script
// every head and every chunk of queries is a task of its own.
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    // Batches and groups of 4 query heads, which share a KV head in examples/soft-cap.mlir.
    %group, %tasks = transform.structured.tile_using_forall %attention tile_sizes [1, 4, 0]
        (mapping = [#attn.task<0>, #attn.task<1>]) : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %tile, %loops:2 = transform.structured.tile_using_for %group tile_sizes [0, 1, 48]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %steps = transform.attn.tile_keys %tile rows = 48 cols = 64 : (!transform.any_op) -> !transform.any_op
    // The tiles are written into the result of the task.
    transform.bufferization.eliminate_empty_tensors %tasks : !transform.any_op
    transform.yield
  }
}
