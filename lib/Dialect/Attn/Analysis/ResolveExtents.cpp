//===- ResolveExtents.cpp - Extents of results from those of arguments --------===//
//
// Ops compute the extents of their results from their operands (ReifyRankedShapedTypeOpInterface). Upstream patterns
// apply this, and canonicalization folds the result.
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
  // Comparisons of equal extents fold only after CSE.
  for (int round = 0; round < 2; ++round) {
    if (failed(applyPatternsGreedily(function, frozen)))
      return function.emitError("extents of the results do not converge");
    IRRewriter rewriter(context);
    DominanceInfo dominance(function);
    eliminateCommonSubExpressions(rewriter, dominance, function);
  }
  return success();
}
