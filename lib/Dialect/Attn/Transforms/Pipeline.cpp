//===- Pipeline.cpp - The transforms stage ------------------------------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Transforms/Passes.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"
#include "saccade/Import/Raise/Passes.h"

using namespace mlir;

void saccade::buildTransformsPipeline(OpPassManager &pm, const TransformsOptions &options) {
  pm.addPass(attn::createVerifyInput());
  // Inlining folds and canonicalizes as well.
  pm.addNestedPass<func::FuncOp>(attn::createSplitIndexCasts());
  // Arithmetic on tensors is a structured op in all but name, and its shapes are checked like those of any other.
  pm.addPass(createConvertElementwiseToLinalgPass());
  // An entry must see through its calls to know its results' extents.
  pm.addPass(createInlinerPass());
  // Models write attention in many functions: it is seen whole once calls are inlined, and no op was fused yet.
  pm.addNestedPass<func::FuncOp>(createRaiseAttention({options.remarks, options.lint}));
  if (options.lint)
    pm.addPass(attn::createLint());
  // Shapes are checked in terms of the ops that the user wrote. On the host nobody reads the memory of a GPU.
  pm.addPass(attn::createCreateShapeFunctions({/*mayReadElements=*/!options.forGPU}));
  OpPassManager &function = pm.nest<func::FuncOp>();
  // Reshapes that undo each other stand between ops that could be fused.
  function.addPass(createCanonicalizerPass());
  function.addPass(attn::createFuseElementwise());
  function.addPass(attn::createFoldTransposes());
  function.addPass(attn::createFlattenRows());
  function.addPass(createCanonicalizerPass());
  function.addPass(createCSEPass());
  function.addPass(attn::createProveStability());
}
