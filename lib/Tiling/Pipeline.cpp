//===- Pipeline.cpp - The tiling stage ----------------------------------------===//
#include "saccade/Tiling/Passes.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

void saccade::buildTilingPipeline(OpPassManager &pm) {
  pm.addNestedPass<func::FuncOp>(createTileQueries());
  pm.addNestedPass<func::FuncOp>(createTileKeys());
  // Only what is still outside of the tasks of attention.
  pm.addNestedPass<func::FuncOp>(createTileLinalg());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addNestedPass<func::FuncOp>(createVerifyTiled());
}
