//===- Pipeline.cpp - The code generation stage for GPUs ----------------------===//
//
// Kernels of the best family first; what none has taken is left to the portable form.
//
//===----------------------------------------------------------------------===//
#include "saccade/Codegen/GPU/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace saccade;

void saccade::buildGPUCodegenPipeline(OpPassManager &pm, const GPUTarget &target) {
  pm.addPass(createOutlineKernels());
  OpPassManager &device = pm.nest<mlir::gpu::GPUModuleOp>();
  OpPassManager &kernel = device.nest<func::FuncOp>();
  if (target.hasAsyncCopy)
    kernel.addPass(createLowerAttentionSM80());
  kernel.addPass(createLowerAttentionSIMT());
  // States that threads hold themselves are finished by now.
  kernel.addPass(createLowerStateSIMT());
  if (target.hasAsyncCopy)
    kernel.addPass(createLowerMatmulSM80());
  kernel.addPass(createLowerLinalgSIMT());
  // Every buffer of a kernel is known now.
  kernel.addPass(createPlanSharedMemory({target.name.str()}));
  kernel.addPass(createCanonicalizerPass());
  kernel.addPass(createCSEPass());
  device.addPass(createConvertKernelsToLLVM());
  pm.addPass(createLowerLaunches());
}
