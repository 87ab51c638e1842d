//===- Passes.h - The tiling stage --------------------------------*- C++ -*-===//
#ifndef SACCADE_TILING_PASSES_H
#define SACCADE_TILING_PASSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/PassManager.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Support/PipelineStep.h"

namespace saccade {

#define GEN_PASS_DECL
#include "saccade/Tiling/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "saccade/Tiling/Passes.h.inc"

/// Creates a canonicalizer that keeps an `scf.forall` of one iteration, which is a task. Required between tiling and
/// task outlining.
std::unique_ptr<mlir::Pass> createTaskKeepingCanonicalizer();

/// Returns the number of queries per task, except the last one, if `queries` queries are tiled by `schedule`. Used by
/// reports.
int64_t queriesPerTask(mlir::MLIRContext *context, int64_t queries, attn::ScheduleAttr schedule);

/// Builds the tables of `attn-tabulate-relative-positions` for one op before it, and makes its regions read them.
void tabulateRelativePositions(attn::ScoringOpInterface op);

/// Tiles one attention into tasks, as `attn-tile-queries` does, and replaces it by the returned results of parallel
/// loops. `gpu` is the option of the pass. Fails with an error if it has no schedule or its shapes cannot be tiled.
mlir::FailureOr<llvm::SmallVector<mlir::Value>> tileQueries(mlir::RewriterBase &rewriter, attn::AttentionOp op,
                                                            bool gpu);

/// Tiles one attention over a single batch and head into a loop over keys, as `attn-tile-keys` does, and erases it.
/// Returns the loop, or both loops of a softmax that needs two passes. Fails with an error, without changes, if it has
/// no schedule, more than one batch or head, a dynamic head size, or, in a task, more queries than its schedule has
/// rows.
mlir::FailureOr<llvm::SmallVector<mlir::scf::ForOp, 1>> tileKeys(mlir::RewriterBase &rewriter, attn::AttentionOp op);

/// Adds the passes of the tiling stage. Afterwards there is no attn.attention, and no temporary as large as a whole key
/// or value tensor. With `forGPU`, tiles are smaller, because temporaries are stored in shared memory, and the test of
/// key tiles against the mask is left to the kernels, which subdivide them. Its steps are attention and
/// linalg.
void buildTilingPipeline(mlir::OpPassManager &pm, bool forGPU = false, StepListener onStep = ignoreStep);

} // namespace saccade

#endif // SACCADE_TILING_PASSES_H
