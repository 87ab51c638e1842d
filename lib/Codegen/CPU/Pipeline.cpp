//===- Pipeline.cpp - The CPU code generation stage ---------------------------===//
#include "mlir/Transforms/Passes.h"
#include "saccade/Codegen/CPU/Passes.h"

using namespace mlir;
using namespace saccade;

void saccade::buildCPUCodegenPipeline(OpPassManager &pm, const CPUTarget &target, StepListener onStep) {
  onStep("vectors");
  std::string cpu = target.name.str();
  OpPassManager &function = pm.nest<func::FuncOp>();
  function.addPass(createLowerUnpackedAccumulate({cpu}));
  function.addPass(createLowerLoadPages({cpu}));
  function.addPass(createLowerAccumulate({cpu}));
  function.addPass(createLowerState({cpu}));
  function.addPass(createLowerContraction({cpu}));
  function.addPass(createLowerPackedMatmul({cpu}));
  // After the contractions: the remaining linalg ops are elementwise or reductions.
  function.addPass(createLowerLinalg({cpu}));
  // Otherwise vector math functions would become scalar library calls.
  function.addPass(createExpandMath({cpu}));
  // Likewise for conversions, some of which come from math functions of narrow types.
  function.addPass(createExpandConversions({cpu}));
  function.addPass(createCanonicalizerPass());
  function.addPass(createCSEPass());
  // The lowerings emit index arithmetic at its uses; hoist the loop-invariant part.
  function.addPass(createLoopInvariantCodeMotionPass());
  onStep("llvm");
  // No later pass adds buffers to tasks.
  pm.addPass(createPlanScratch());
  pm.addPass(createConvertToLLVM());
}
