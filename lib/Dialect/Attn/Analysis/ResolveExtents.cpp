//===- ResolveExtents.cpp - From extents of results to those of arguments -----===//
//
// Every op says how its results' extents follow from its operands' (ReifyRankedShapedTypeOpInterface); upstream
// patterns follow that, and canonicalisation does the rest.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/ResolveExtents.h"
#include "mlir/Dialect/MemRef/Transforms/Transforms.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

LogicalResult saccade::attn::resolveExtents(func::FuncOp function) {
  MLIRContext *context = function.getContext();
  RewritePatternSet patterns(context);
  memref::populateResolveRankedShapedTypeResultDimsPatterns(patterns);
  memref::populateResolveShapedTypeResultDimsPatterns(patterns);
  for (Dialect *dialect : context->getLoadedDialects())
    dialect->getCanonicalizationPatterns(patterns);
  for (RegisteredOperationName op : context->getRegisteredOperations())
    op.getCanonicalizationPatterns(patterns, context);
  FrozenRewritePatternSet frozen(std::move(patterns));
  // Equal extents of one argument are one value only after CSE; comparisons of them fold only then.
  for (int round = 0; round < 2; ++round) {
    if (failed(applyPatternsGreedily(function, frozen)))
      return function.emitError("the extents of the results do not settle");
    IRRewriter rewriter(context);
    DominanceInfo dominance(function);
    eliminateCommonSubExpressions(rewriter, dominance, function);
  }
  return success();
}
