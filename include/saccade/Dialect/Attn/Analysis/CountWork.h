//===- CountWork.h - How much there is to compute -----------------*- C++ -*-===//
//
// Counts from whole-tensor programs, for throughput figures and for choosing how much to check.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_COUNTWORK_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_COUNTWORK_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <optional>

namespace saccade::attn {

struct Work {
  /// Of attention, 2·b·h·q·k·(d_k + d_v) with masked pairs counted too, and of contractions, two a multiply-add.
  /// Everything else is not counted.
  int64_t flops = 0;
  /// Batch × query length of the first attention; 0 without one.
  int64_t tokens = 0;
};

/// An argument as far as extents can depend on it: the shape of a tensor, or the value of an integer scalar.
struct WorkArgument {
  llvm::SmallVector<int64_t, 4> shape;
  int64_t value = 0;
};

/// Counts the work of one call of `function`. Nothing where extents depend on the contents of tensors.
std::optional<Work> countWork(mlir::func::FuncOp function, llvm::ArrayRef<WorkArgument> arguments);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_COUNTWORK_H
