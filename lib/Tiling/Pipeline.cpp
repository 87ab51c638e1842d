//===- Pipeline.cpp - The tiling stage ----------------------------------------===//
#include "saccade/Tiling/Passes.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace saccade;

std::unique_ptr<Pass> saccade::createTaskKeepingCanonicalizer() {
  // Upstream gives no other handle on this pattern than its name.
  return createCanonicalizerPass({}, {"(anonymous namespace)::ForallOpSingleOrZeroIterationDimsFolder"});
}

void saccade::buildTilingPipeline(OpPassManager &pm, bool forGPU) {
  // On whole attention: one table serves all tasks.
  if (!forGPU)
    pm.addNestedPass<func::FuncOp>(createTabulateRelativePositions());
  pm.addNestedPass<func::FuncOp>(createTileQueries());
  pm.addNestedPass<func::FuncOp>(createTileKeys());
  // The tables that it makes are tiled like everything else.
  if (!forGPU)
    pm.addNestedPass<func::FuncOp>(createSkipMaskedTiles());
  pm.addNestedPass<func::FuncOp>(createFoldBias());
  pm.addNestedPass<func::FuncOp>(createTileLinear());
  // Only what is still outside of the tasks of attention.
  TileLinalgOptions limits;
  if (forGPU)
    limits = {/*tileElements=*/2048, /*temporaryElements=*/4096};
  pm.addNestedPass<func::FuncOp>(createTileLinalg(limits));
  pm.addPass(createTaskKeepingCanonicalizer());
  pm.addPass(createCSEPass());
  pm.addNestedPass<func::FuncOp>(createVerifyTiled());
}
