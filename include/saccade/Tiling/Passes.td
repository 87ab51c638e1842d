//===- Passes.td - From whole tensors to tiles ------------------*- tablegen -*-===//
#ifndef SACCADE_TILING_PASSES_TD
#define SACCADE_TILING_PASSES_TD

include "mlir/Pass/PassBase.td"

def TabulateRelativePositions : Pass<"attn-tabulate-relative-positions", "::mlir::func::FuncOp"> {
  let summary = "tabulates what regions say about the distance of query and key";
  let description = [{
    Parts of a score, weight or tally region that depend on batch, head and key − query alone, and that cost more than a
    read (reads of tables at a distance, functions, divisions), become tables with a number for each distance, made once
    in O(heads · (queries + keys)), of keys as many as a length lets count. The region reads them at key − query, so that the numbers of a register's keys lie
    beside each other. Masks are left to their own analysis.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
}

def TileQueries : Pass<"attn-tile-queries", "::mlir::func::FuncOp"> {
  let summary = "cuts attention into parallel tasks over batch, head and queries";
  let description = [{
    One task a batch, head and chunk of at most `rows` queries of the schedule; chunks of one head are of nearly
    equal size, so that no task is left with a few rows.

    An op with a `few` schedule and few queries becomes two loops instead: one task a batch, key head and chunk of keys,
    whose states the second loop merges. One chunk is finished by the first, and the second has no iteration. Where the
    number of queries is not known, both forms stand in a row, and the one that does not hold has no iteration.

    Packed sequences are cut likewise, each by itself: code in front of the tasks lists a task for every head and chunk of
    every sequence, the longest sequences first. A task slices its sequence out of the packed tensors; from there on
    nothing is packed.
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::affine::AffineDialect", "::mlir::math::MathDialect",
                           "::mlir::tensor::TensorDialect"];
}

def TileKeys : Pass<"attn-tile-keys", "::mlir::func::FuncOp"> {
  let summary = "turns attention over one batch and head into a loop over tiles of keys";
  let description = [{
    `attn.attention` becomes the empty state, `attn.accumulate` in an `scf.for` over tiles of `cols` keys, and
    `attn.finalize`. The bounds of the loop are those keys that mask and lengths let some query of the tile reach.
    Tiles lie at fixed multiples of `cols`, so that the order of summation depends on nothing else.
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::affine::AffineDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def SkipMaskedTiles : Pass<"attn-skip-masked-tiles", "::mlir::func::FuncOp"> {
  let summary = "tests each tile of keys against the mask before it is worked on";
  let description = [{
    Where the bounds of the key loop are not all that a mask says, code stands in front of every `attn.accumulate` that
    proves what it can about the mask in this very tile (`analyzeMask`): an empty tile is skipped. (What is full is left to
    code generation, which looks at smaller parts.) Tensors that the mask reads get tables of the least and greatest element of each block, made once, in
    time and memory proportional to the tensors.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect"];
}

def VerifyTiled : Pass<"attn-verify-tiled", "::mlir::func::FuncOp"> {
  let summary = "checks that everything runs in tiles";
  let description = [{
    The invariant at the end of the tiling stage: no `attn.attention` and no `attn.linear` is left, and every structured op stands in the
    body of an `scf.forall`, that is, in a task.
  }];
}

def FoldBias : Pass<"attn-fold-bias", "::mlir::func::FuncOp"> {
  let summary = "start products from the bias that is added to them";
  let description = [{
    A product that starts from 0, to which a vector along its columns is added, starts from that vector; one that is only
    rounded to the type of its factors is computed in it, which means the same: sums are held in f32.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def TileLinear : Pass<"attn-tile-linear", "::mlir::func::FuncOp"> {
  let summary = "cuts linear attention into parallel tasks over batch and head, and these into chunks";
  let description = [{
    One task a batch and key head carries the state through chunks of positions (the chunked form of Yang et al. 2024).
    Within a chunk everything is products of small matrices: queries with the state as it was, and with the keys of the chunk
    before them. Decays are products of their own factors, never quotients, so that nothing overflows however strong they
    are. The delta rule solves a triangular system a chunk. Without `causal` a first loop makes the state, a second reads it.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
}

def TileLinalg : Pass<"attn-tile-linalg", "::mlir::func::FuncOp"> {
  let summary = "cuts the structured ops around attention into parallel tasks";
  let description = [{
    Ops are taken in groups that share a loop: a matrix product with its initial value and what is applied to its
    result, in tiles of the schedule's rows and columns; reductions over rows with what surrounds them, in tiles of
    whole rows; elementwise ops. Nothing is computed twice. Temporaries inside a task have a static size. An op without
    a parallel dimension is one task.
  }];
  let options = [
    // With what it is computed from such a tile stays in the first two levels of a cache.
    Option<"tileElements", "tile-elements", "int64_t", "16384", "How many elements a tile has at most">,
    Option<"temporaryElements", "temporary-elements", "int64_t", "65536",
           "How many elements of a temporary a task may hold">];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
}

#endif // SACCADE_TILING_PASSES_TD
