//===- Pipeline.cpp - The code generation stage for GPUs ----------------------===//
//
// Runs the specialized lowerings first; the portable SIMT lowering handles the remaining ops.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Transforms/Passes.h"
#include "saccade/Codegen/GPU/Passes.h"

using namespace mlir;
using namespace saccade;

void saccade::buildGPUCodegenPipeline(OpPassManager &pm, const GPUTarget &target, StepListener onStep) {
  onStep("kernels");
  pm.addPass(createOutlineKernels());
  if (target.hasBulkCopy) {
    pm.addNestedPass<mlir::gpu::GPUModuleOp>(createLowerAttentionSM90({target.name.str()}));
    pm.addNestedPass<mlir::gpu::GPUModuleOp>(createLowerGradientSM90({target.name.str()}));
    pm.addNestedPass<mlir::gpu::GPUModuleOp>(createLowerMatmulSM90({target.name.str()}));
  }
  OpPassManager &kernel = pm.nest<mlir::gpu::GPUModuleOp>().nest<func::FuncOp>();
  if (target.hasAsyncCopy)
    kernel.addPass(createLowerAttentionSM80());
  kernel.addPass(createLowerAttentionSIMT());
  // Thread-private states are lowered; states in global memory remain.
  kernel.addPass(createLowerStateSIMT());
  if (target.hasAsyncCopy)
    kernel.addPass(createLowerGradientSM80());
  kernel.addPass(createPadSharedBuffers({target.name.str()}));
  if (target.hasAsyncCopy)
    kernel.addPass(createLowerMatmulSM80());
  kernel.addPass(createLowerLinalgSIMT());
  // All remaining buffers of a kernel are known now.
  kernel.addPass(createPlanSharedMemory({target.name.str()}));
  kernel.addPass(createCanonicalizerPass());
  kernel.addPass(createCSEPass());
  onStep("ptx");
  pm.addNestedPass<mlir::gpu::GPUModuleOp>(createConvertKernelsToLLVM());
  pm.addPass(createLowerLaunches());
}
