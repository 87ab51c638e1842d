//===- Pipeline.cpp - The tiling stage ----------------------------------------===//
#include "mlir/Transforms/Passes.h"
#include "saccade/Tiling/Passes.h"

using namespace mlir;
using namespace saccade;

std::unique_ptr<Pass> saccade::createTaskKeepingCanonicalizer() {
  // The pattern drops unused results, and leaves their dynamic allocations in the task. Upstream exposes it by its
  // debug name only.
  return createCanonicalizerPass({}, {"(anonymous namespace)::ForallOpIterArgsFolder"});
}

void saccade::buildTilingPipeline(OpPassManager &pm, bool forGPU, StepListener onStep) {
  onStep("attention");
  // Before tiling, so that one table serves all tasks.
  if (!forGPU)
    pm.addNestedPass<func::FuncOp>(createTabulateRelativePositions());
  TileQueriesOptions plan;
  plan.gpu = forGPU;
  pm.addNestedPass<func::FuncOp>(createTileQueries(plan));
  pm.addNestedPass<func::FuncOp>(createTileKeys());
  // Before TileLinalg, which tiles the tables.
  pm.addNestedPass<func::FuncOp>(createSkipMaskedTiles({/*gpu=*/forGPU}));
  pm.addNestedPass<func::FuncOp>(createFoldBias());
  pm.addNestedPass<func::FuncOp>(createTileLinear({/*gpu=*/forGPU}));
  pm.addNestedPass<func::FuncOp>(createTileGradient({/*gpu=*/forGPU}));
  pm.addNestedPass<func::FuncOp>(createTileJvp({/*gpu=*/forGPU}));
  onStep("linalg");
  // After attention, which reads pages by tiles, and before TileLinalg, which tiles the copies.
  pm.addNestedPass<func::FuncOp>(createExpandPaged());
  // Tiles only ops outside of the tasks of attention.
  TileLinalgOptions limits;
  if (forGPU)
    limits = {/*tileElements=*/2048, /*temporaryElements=*/4096};
  pm.addNestedPass<func::FuncOp>(createTileAppend({limits.tileElements}));
  pm.addNestedPass<func::FuncOp>(createTileLinalg(limits));
  pm.addPass(createTaskKeepingCanonicalizer());
  pm.addPass(createCSEPass());
  pm.addNestedPass<func::FuncOp>(createVerifyTiled());
}
