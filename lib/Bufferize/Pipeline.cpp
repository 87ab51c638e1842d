//===- Pipeline.cpp - The bufferize stage -------------------------------------===//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Transforms/Passes.h"
#include "saccade/Bufferize/Bufferize.h"
#include "saccade/Bufferize/Passes.h"
#include "saccade/Tiling/Passes.h"

using namespace mlir;

void saccade::buildBufferizePipeline(OpPassManager &pm, const CPUTarget &target, bool forGPU, bool prepack,
                                     StepListener onStep) {
  onStep("buffers");
  // Otherwise tensor.dim of a result would keep the result alive, or force a copy of a collapsed argument.
  pm.addPass(memref::createResolveShapedTypeResultDimsPass());
  pm.addPass(createTaskKeepingCanonicalizer());
  pm.addPass(createResultsToDestinations());
  pm.addPass(createFoldBoundaryReshapes());
  pm.addPass(createBufferizeTensors());
  // Merges equal views, so that canonicalization removes copies of a view to itself.
  pm.addPass(createCSEPass());
  pm.addPass(createTaskKeepingCanonicalizer());
  onStep("tasks");
  if (forGPU)
    pm.addNestedPass<func::FuncOp>(createTileHostOps());
  else
    pm.addPass(createPrepackRHS({target.name.str(), prepack}));
  pm.addPass(createOutlineTasks({/*gpu=*/forGPU}));
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createDropCaptures());
  pm.addPass(createMergeTasks());
  if (prepack && !forGPU)
    pm.addPass(createHoistConstants());
  pm.addNestedPass<func::FuncOp>(createReleaseTemporaries());
  pm.addPass(createVerifyBufferized());
}
