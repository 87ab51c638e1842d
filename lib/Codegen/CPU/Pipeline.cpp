//===- Pipeline.cpp - The CPU code generation stage ---------------------------===//
#include "saccade/Codegen/CPU/Passes.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace saccade;

void saccade::buildCPUCodegenPipeline(OpPassManager &pm, const CPUTarget &target) {
  std::string level = target.name.str();
  OpPassManager &function = pm.nest<func::FuncOp>();
  function.addPass(createLowerUnpackedAccumulate({level}));
  function.addPass(createLowerAccumulate({level}));
  function.addPass(createLowerState({level}));
  function.addPass(createLowerContraction({level}));
  function.addPass(createLowerPackedMatmul({level}));
  // After the contractions: what is left of linalg is elementwise or a reduction.
  function.addPass(createLowerLinalg({level}));
  // Vectors of exponentials and the like would become scalar calls.
  function.addPass(createExpandMath({level}));
  // The same holds for conversions; math functions of narrow types have left some.
  function.addPass(createExpandConversions({level}));
  function.addPass(createCanonicalizerPass());
  function.addPass(createCSEPass());
  // Index arithmetic that codegen wrote where it was needed moves out of the loops it does not depend on.
  function.addPass(createLoopInvariantCodeMotionPass());
  // Every buffer of a task is known now.
  pm.addPass(createPlanScratch());
  pm.addPass(createConvertToLLVM());
}
