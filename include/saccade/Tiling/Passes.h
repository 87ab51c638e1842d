//===- Passes.h - The tiling stage --------------------------------*- C++ -*-===//
#ifndef SACCADE_TILING_PASSES_H
#define SACCADE_TILING_PASSES_H

#include "saccade/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"

namespace saccade {

#define GEN_PASS_DECL
#include "saccade/Tiling/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "saccade/Tiling/Passes.h.inc"

/// The canonicalizer from tiling until tasks are outlined: it keeps an `scf.forall` of one iteration, which is a task too.
std::unique_ptr<mlir::Pass> createTaskKeepingCanonicalizer();

/// How many of `queries` queries a task has, all but the last one, where they are cut by `schedule`. For reports.
int64_t queriesPerTask(mlir::MLIRContext *context, int64_t queries, attn::ScheduleAttr schedule);

/// Whether its states can be merged, so that it may be cut along keys where queries are few: `op` has no weight region, tally or
/// largest score.
bool canSplitKV(attn::AttentionOp op);

/// Afterwards there is no attn.attention, and no temporary as large as a whole key or value tensor.
/// Tasks `forGPU` are small, for many of them share a GPU's processor and what they hold is its shared memory; their
/// code does not ask before each tile of keys whether the mask leaves any of it, for a kernel cuts up its steps itself.
void buildTilingPipeline(mlir::OpPassManager &pm, bool forGPU = false);

} // namespace saccade

#endif // SACCADE_TILING_PASSES_H
