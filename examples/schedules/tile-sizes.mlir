// Other tile sizes, by the steps of the compiler: tasks of at most 96 queries, steps of 64 keys.
// saccade-run PROGRAM --transform-script=examples/schedules/tile-sizes.mlir
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %attention = transform.structured.match ops{["attn.attention"]} in %program : (!transform.any_op) -> !transform.any_op
    transform.attn.tabulate_relative_positions %attention : !transform.any_op
    %tiles, %tasks = transform.attn.tile_queries %attention rows = 96 : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %steps = transform.attn.tile_keys %tiles cols = 64 : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
