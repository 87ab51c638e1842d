//===- Pipeline.cpp - The transforms stage ------------------------------------===//
//
// The passes on whole tensors, after import and before schedules are chosen.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Transforms/Passes.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"
#include "saccade/Import/Raise/Passes.h"

using namespace mlir;
using namespace saccade;

/// Verifies, inlines and raises: then every attention is visible in its function.
static void addInlining(OpPassManager &pm, const saccade::TransformsOptions &options, StepListener onStep) {
  onStep("inline");
  pm.addPass(attn::createVerifyInput());
  // Before inlining, which folds and canonicalizes.
  pm.addNestedPass<func::FuncOp>(attn::createSplitIndexCasts());
  // Converts arith on tensors to structured ops, so that their shapes are checked.
  pm.addPass(createConvertElementwiseToLinalgPass());
  // The extents of an entry's results are computed through its calls.
  pm.addPass(createInlinerPass());
  onStep("raise");
  // After inlining, since models compute attention in several functions, and before fusion.
  pm.addNestedPass<func::FuncOp>(createRaiseAttention({options.remarks, options.lint}));
}

void saccade::buildGradientFunctionsPipeline(OpPassManager &pm) {
  addInlining(pm, {}, ignoreStep);
  pm.addPass(attn::createDifferentiate());
}

static void addFusion(OpPassManager &function, bool forGPU) {
  function.addPass(attn::createExpandWeights());
  // Removes opposite reshapes between ops that can be fused.
  function.addPass(createCanonicalizerPass());
  function.addPass(attn::createFuseElementwise());
  function.addPass(attn::createFoldTransposes());
  function.addPass(attn::createFlattenRows());
  function.addPass(attn::createPlaceDequantize({forGPU}));
  function.addPass(createCanonicalizerPass());
  function.addPass(createCSEPass());
}

void saccade::buildIntermediatesPipeline(OpPassManager &pm, bool fused) {
  addInlining(pm, {}, ignoreStep);
  if (fused)
    addFusion(pm.nest<func::FuncOp>(), /*forGPU=*/false);
  // What attention was raised from is dead, and would be returned as well.
  pm.addNestedPass<func::FuncOp>(createCSEPass());
  pm.addPass(attn::createReturnIntermediates());
}

/// Kernels for tensor cores have positions of keys in 32 bits (`KeyBounds`), also in the section of keys after the last
/// one, whose size is that of `AssignGPUSchedule`.
static constexpr int64_t maxKeysOnGPU = (int64_t(1) << 31) - 16384;

void saccade::buildTransformsPipeline(OpPassManager &pm, const TransformsOptions &options, StepListener onStep) {
  addInlining(pm, options, onStep);
  if (options.lint)
    pm.addPass(attn::createLint());
  onStep("derive");
  // After raising, because attention has a rule and a softmax has none, and before entries have shape functions.
  pm.addPass(attn::createDifferentiate());
  onStep("shapes");
  // Before fusion, so that messages name the user's ops. The host cannot read GPU memory.
  pm.addPass(
      attn::createCreateShapeFunctions({/*mayReadElements=*/!options.forGPU, options.forGPU ? maxKeysOnGPU : 0}));
  onStep("fuse");
  OpPassManager &function = pm.nest<func::FuncOp>();
  addFusion(function, options.forGPU);
  function.addPass(attn::createProveStability());
}
