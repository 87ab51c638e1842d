//===- Passes.td - The passes of the tiling stage ---------------*- tablegen -*-===//
#ifndef SACCADE_TILING_PASSES_TD
#define SACCADE_TILING_PASSES_TD

include "mlir/Pass/PassBase.td"

def TabulateRelativePositions : Pass<"attn-tabulate-relative-positions", "::mlir::func::FuncOp"> {
  let summary = "tabulate region code that depends on the relative position only";
  let description = [{
    Subexpressions of score, weight and tally regions that depend only on batch, head and the relative position
    key − query, and that cost more than a load (table lookups, math functions, divisions), are computed once per relative
    position into a table of O(heads · (queries + keys)) elements, keys clamped to `kv_len`. The region loads the table at
    key − query, so that consecutive keys read consecutive elements. Mask regions are left to the mask analyses, and ops in
    tasks are left as they are.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
}

def ExpandPaged : Pass<"attn-expand-paged", "::mlir::func::FuncOp"> {
  let summary = "copy the keys of a page pool as a whole";
  let description = [{
    Replaces each `attn.paged` that still has uses by a `linalg.generic` that copies all positions of all sequences. On a
    CPU, attention reads a paged cache by tiles and leaves no use; derivatives and all other consumers need the copy.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def TileQueries : Pass<"attn-tile-queries", "::mlir::func::FuncOp"> {
  let summary = "tile attention into parallel tasks over batch, head and queries";
  let description = [{
    One task per batch, head and chunk of at most `rows` queries of the schedule. The chunks of a head have nearly equal
    sizes, so that no task is left with a small remainder.

    A sequence with at most as many queries as a `split_kv` schedule states is tiled by split-KV (flash-decoding)
    instead: one task per sequence, KV head and chunk of keys, and a second loop that merges the partial states. Only
    chunks that mask and lengths make visible have tasks. A head with a single chunk is finalized by the first loop. If
    the number of queries is dynamic, both variants are emitted; the unused one has trip count zero.

    Ragged sequences are tiled individually: serial code before the loops lists an item for every chunk of every
    sequence, longest sequences first. A task extracts its sequence from the ragged tensors; all ops inside of it are
    dense. Short sequences are split, the others are tiled by queries.

    With `gpu`, tasks of attention with a mask or of ragged sequences are ordered by sections of heads whose keys and values
    fit into an L2 cache. Within a section, items of all heads come by length: with a mask the last chunks first, of
    ragged sequences in the order of the list.

    Attention in an `scf.forall` is left as it is: a script or a pass of the user has tiled it. Such a loop without mapping
    gets that of tasks.
  }];
  let options = [Option<"gpu", "gpu", "bool", "false", "tasks list the items of ragged sequences, and nothing else reads a tensor">];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::affine::AffineDialect", "::mlir::math::MathDialect",
                           "::mlir::tensor::TensorDialect"];
}

def TileKeys : Pass<"attn-tile-keys", "::mlir::func::FuncOp"> {
  let summary = "tile attention over one batch and head into a loop over keys";
  let description = [{
    `attn.attention` becomes an initial state, `attn.accumulate` in an `scf.for` over tiles of `cols` keys, and
    `attn.finalize`. The loop bounds cover the keys that mask and lengths make visible to some query of the tile. Tiles
    start at absolute multiples of `cols`, so that the order of summation is independent of the offset of a call.

    A tile of keys or values that are the result of `attn.paged` or of a dequantization is loaded and computed in the
    task.
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::affine::AffineDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def SkipMaskedTiles : Pass<"attn-skip-masked-tiles", "::mlir::func::FuncOp"> {
  let summary = "skip key tiles that the mask leaves empty";
  let description = [{
    If the bounds of the key loop do not express the whole mask, every `attn.accumulate` is guarded by a run-time
    test that analyzes the mask over the tile (`analyzeMask`) and skips an empty tile. Full tiles are detected by code
    generation, in smaller blocks. Tensors that the mask reads get tables of the minimum and maximum of each block,
    computed once in time and memory linear in the tensors.

    With `gpu`, code generation tests all tiles, and the op only captures the tables.
  }];
  let options = [Option<"gpu", "gpu", "bool", "false", "leave the test to code generation and capture its tables">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect"];
}

def VerifyTiled : Pass<"attn-verify-tiled", "::mlir::func::FuncOp"> {
  let summary = "verify that all ops are tiled";
  let description = [{
    The invariant at the end of the tiling stage: no op of `attn` on whole tensors is left, and every structured
    op is nested in an `scf.forall`, that is, in a task.
  }];
}

def FoldBias : Pass<"attn-fold-bias", "::mlir::func::FuncOp"> {
  let summary = "fold bias additions and truncations into matmuls";
  let description = [{
    A matmul initialized with 0 and followed by the addition of a vector along its columns is initialized with that
    vector. A matmul followed by a truncation to the type of its operands is computed in that type; this is equivalent,
    because sums are accumulated in f32.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def TileLinear : Pass<"attn-tile-linear", "::mlir::func::FuncOp"> {
  let summary = "tile linear attention into parallel tasks over batch and head, and these into chunks";
  let description = [{
    One task per sequence and head of values carries the state through chunks of positions (the chunked form of Yang et
    al. 2024). A chunk consists of small matmuls: queries with the state before the chunk, and queries with the preceding
    keys of the chunk. Decays are computed as cumulative products, never as quotients, so that strong decays do not
    overflow. The delta rule inverts a triangular matrix per chunk, by blocks. Without `causal`, one loop computes the state
    and a second reads it.

    `attn.linear_gradient` becomes two parallel loops: one stores the state before each chunk, the other visits the chunks
    from the last to the first.

    With `gpu`, a task computes the table of ragged sequences.
  }];
  let options = [Option<"gpu", "gpu", "bool", "false", "compute tables of sequences in a task">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::bufferization::BufferizationDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
}

def TileGradient : Pass<"attn-tile-gradient", "::mlir::func::FuncOp"> {
  let summary = "tile gradients of attention into parallel tasks, and these into tiles of queries and keys";
  let description = [{
    One task per batch and KV head has a loop over tiles of keys, and inside it a loop over the tiles of queries of its
    heads that mask and lengths make visible. A tile of pairs consists of five matmuls and one elementwise op, which
    evaluates the regions. The gradients of queries are accumulated in the result in the order of the keys, so the
    bits of a result do not depend on the number of threads.

    With `gpu`, the gradients of queries have tasks of their own, which repeat the two matmuls of scores and products. A
    task then computes one tile of queries or of keys, so that short batches fill a GPU. Gradients of captures are
    computed with those of the keys, by one task per batch and KV head.
  }];
  let options = [Option<"gpu", "gpu", "bool", "false", "compute the gradients of queries in tasks of their own">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
}

def TileJvp : Pass<"attn-tile-jvp", "::mlir::func::FuncOp"> {
  let summary = "tile tangents of attention into parallel tasks, and these into tiles of queries and keys";
  let description = [{
    One task per batch, query head and tile of queries has a loop over the tiles of keys that mask and lengths make
    visible, in the order of the keys. A tile of pairs consists of up to five matmuls and one elementwise op, which
    evaluates the regions. Ragged sequences have one task per sequence and head.
  }];
  let options = [Option<"gpu", "gpu", "bool", "false", "a task computes the starts of ragged sequences">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
}

def TileAppend : Pass<"attn-tile-append", "::mlir::func::FuncOp"> {
  let summary = "tile attn.append into parallel copies of rows";
  let description = [{
    `attn.append` becomes one parallel loop over batches and rows. A work item copies successive rows of one batch, all
    heads of at most `tile-elements` elements, into a slice of the cache; the rows of a ring are items of their own. The
    loop has the cache as its destination, so that bufferization writes the rows in place. An argument without
    `attn.updated_by` is copied first.
  }];
  let options = [Option<"tileElements", "tile-elements", "int64_t", "16384", "maximum number of elements of an item">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect"];
}

def TileLinalg : Pass<"attn-tile-linalg", "::mlir::func::FuncOp"> {
  let summary = "tile the structured ops around attention into parallel tasks";
  let description = [{
    Ops are grouped into fused loops of three kinds: a matmul with its initialization and epilogue, in tiles of the
    schedule's rows and columns; row reductions with their elementwise producers and consumers, in tiles of whole rows;
    elementwise ops. No element is computed twice. Temporaries inside a task have a static size. An op without a parallel
    dimension becomes one task.
  }];
  let options = [
    // A tile and its inputs stay in L1 and L2.
    Option<"tileElements", "tile-elements", "int64_t", "16384", "maximum number of elements of a tile">,
    Option<"temporaryElements", "temporary-elements", "int64_t", "65536",
           "maximum number of elements of a temporary inside a task">];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
}

#endif // SACCADE_TILING_PASSES_TD
