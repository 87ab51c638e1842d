//===- Passes.h - The tiling stage --------------------------------*- C++ -*-===//
#ifndef SACCADE_TILING_PASSES_H
#define SACCADE_TILING_PASSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
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

/// Adds the passes of the tiling stage. Afterwards there is no attn.attention, and no temporary as large as a whole key
/// or value tensor. With `forGPU`, tiles are smaller, because temporaries are stored in shared memory, and the test of
/// key tiles against the mask is left to the kernels, which subdivide them. Its steps are attention and
/// linalg.
void buildTilingPipeline(mlir::OpPassManager &pm, bool forGPU = false, StepListener onStep = ignoreStep);

} // namespace saccade

#endif // SACCADE_TILING_PASSES_H
