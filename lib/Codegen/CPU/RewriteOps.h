//===- RewriteOps.h - Greedy rewriting of some ops ----------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_CPU_REWRITEOPS_H
#define SACCADE_LIB_CODEGEN_CPU_REWRITEOPS_H

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace saccade::cpu {

/// Applies `patterns` to the ops below `root` for which `isIncluded` holds, and to the ops that the patterns create. In
/// contrast to applyPatternsGreedily, the other ops are neither visited nor folded: most of them match no pattern.
inline mlir::LogicalResult rewriteOps(mlir::Operation *root, mlir::RewritePatternSet &&patterns,
                                      llvm::function_ref<bool(mlir::Operation *)> isIncluded) {
  llvm::SmallVector<mlir::Operation *> ops;
  root->walk([&](mlir::Operation *op) {
    if (op != root && isIncluded(op))
      ops.push_back(op);
  });
  if (ops.empty())
    return mlir::success();
  mlir::GreedyRewriteConfig config;
  config.setStrictness(mlir::GreedyRewriteStrictness::ExistingAndNewOps);
  return mlir::applyOpPatternsGreedily(ops, std::move(patterns), config);
}

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_REWRITEOPS_H
