//===- TransformOps.td - Steps of the compiler in scripts -------*- tablegen -*-===//
#ifndef SACCADE_SCRIPT_TRANSFORMOPS_TD
#define SACCADE_SCRIPT_TRANSFORMOPS_TD

include "mlir/Dialect/Transform/IR/TransformDialect.td"
include "mlir/Dialect/Transform/Interfaces/TransformInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/IR/OpBase.td"

class AttnTransformOp<string mnemonic, list<Trait> traits = []>
    : Op<Transform_Dialect, "attn." # mnemonic,
         !listconcat(traits, [MemoryEffectsOpInterface, DeclareOpInterfaceMethods<TransformOpInterface>])> {
  let cppNamespace = "::saccade::script";
}

/// A step that creates other ops from its target.
class AttnRewriteOp<string mnemonic> : AttnTransformOp<mnemonic, [FunctionalStyleTransformOpTrait]>;

def TabulateRelativePositionsOp : AttnTransformOp<"tabulate_relative_positions",
    [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "tabulates region code that depends on the relative position only";
  let description = [{
    Builds the tables of the pass `attn-tabulate-relative-positions` for each target, an op with regions of scores that is
    not in a task. The pass leaves ops in tasks alone, so a script that tiles attention with costly relative terms begins
    with this op. The target stays valid.

    Fails silenceably if a target has no regions of scores or is in a task.
  }];
  let arguments = (ins TransformHandleTypeInterface:$target);
  let assemblyFormat = "$target attr-dict `:` type($target)";
}

def TileQueriesOp : AttnRewriteOp<"tile_queries"> {
  let summary = "tiles attention into parallel tasks over batch, head and queries";
  let description = [{
    Tiles each target, an `attn.attention` outside of tasks, as the pass `attn-tile-queries` does: chunks of at most `rows`
    queries, work lists for ragged sequences, and split-KV if the op has `split_kv`. Without `rows`, those
    of its schedule are taken. The results are the attention ops in the tasks (none if all are split-KV), and the parallel
    loops, in order. `transform.structured.tile_using_forall` tiles attention, too, into tasks of any shape.

    Fails silenceably if a target is another op, is in a task, has no schedule, or if kernels of the target machine cannot
    compute tasks of that many rows.

    ```mlir
    %tiles, %tasks = transform.attn.tile_queries %attention rows = 96
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    ```
  }];
  let arguments = (ins TransformHandleTypeInterface:$target, OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$rows);
  let results = (outs TransformHandleTypeInterface:$tiles, TransformHandleTypeInterface:$tasks);
  let assemblyFormat = "$target (`rows` `=` $rows^)? attr-dict `:` functional-type(operands, results)";
}

def TileKeysOp : AttnRewriteOp<"tile_keys"> {
  let summary = "tiles attention in a task into a loop over keys";
  let description = [{
    Tiles each target, an `attn.attention` over one batch and head in a task, as the pass `attn-tile-keys` does, into steps
    `attn.accumulate` of `cols` keys, with a state of `rows` queries. Without them, those of its schedule are taken; give
    `rows` if an op of MLIR has tiled the queries. `cols` changes the order of sums. The result is the loops over keys.

    Fails silenceably if a target is another op, is not in a task, has no schedule, more than one batch or head, or more
    queries than the state has rows, or if kernels of the target machine cannot compute that many rows.

    ```mlir
    %loops = transform.attn.tile_keys %tiles cols = 64 : (!transform.any_op) -> !transform.any_op
    ```
  }];
  let arguments = (ins TransformHandleTypeInterface:$target, OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$rows,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$cols);
  let results = (outs TransformHandleTypeInterface:$loops);
  let assemblyFormat = "$target (`rows` `=` $rows^)? (`cols` `=` $cols^)? attr-dict `:` functional-type(operands, results)";
}

def LowerAccumulateOp : AttnTransformOp<"lower_accumulate", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "replaces steps of attention by vector code";
  let description = [{
    Replaces each target, an `attn.accumulate` on memory, by vector code for the CPU of the program, as the passes
    `attn-lower-accumulate` and `attn-lower-unpacked-accumulate` do. Before the step `codegen.vectors`.

    Fails silenceably if a target is another op or is not on memory, or if the program is for a GPU. Fails definitely if
    the CPU has no code for its tiles.
  }];
  let arguments = (ins TransformHandleTypeInterface:$target);
  let assemblyFormat = "$target attr-dict `:` type($target)";
}

def MapToGPUOp : AttnRewriteOp<"map_to_gpu"> {
  let summary = "makes tasks kernels of a GPU";
  let description = [{
    Moves the body of each target, a function with `attn.task`, into a kernel with one CTA per work item, as the pass
    `attn-outline-kernels` does. The result is the kernels. Before the step `codegen.kernels`.

    Fails silenceably if a target is no task with a body, or if the program is for a CPU.
  }];
  let arguments = (ins TransformHandleTypeInterface:$target);
  let results = (outs TransformHandleTypeInterface:$kernels);
  let assemblyFormat = "$target attr-dict `:` functional-type(operands, results)";
}

def LowerAttentionOp : AttnTransformOp<"lower_attention", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "lowers the attention of kernels by a family of kernels";
  let description = [{
    Lowers the attention of each target, a kernel, by the family `simt`, `sm_80` (tensor cores) or `sm_90a` (warpgroups),
    as the passes `attn-lower-attention-simt`, `-sm80` and `-sm90` do. Attention that a family does not support is left to
    the passes. `sm_90a` adds a kernel beside the target, which the launch prefers. Handles of the targets and of ops in
    them are invalid afterwards.

    `keys` sets the keys of a step of `sm_80`, 32 or 64, which are otherwise chosen by the registers that a step takes.
    Split-KV keeps its own.

    Fails silenceably if a target is no kernel, or if the program's GPU does not run the family. Fails definitely if the
    family has no code for the tiles of a kernel.

    ```mlir
    %kernels = transform.attn.map_to_gpu %tasks : (!transform.any_op) -> !transform.any_op
    transform.attn.lower_attention %kernels family = "simt" : !transform.any_op
    ```
  }];
  let arguments = (ins TransformHandleTypeInterface:$target, StrAttr:$family, OptionalAttr<I64Attr>:$keys);
  let assemblyFormat = "$target `family` `=` $family (`keys` `=` $keys^)? attr-dict `:` type($target)";
  let hasVerifier = 1;
}

#endif // SACCADE_SCRIPT_TRANSFORMOPS_TD
