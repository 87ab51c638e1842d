//===- CountWork.h - Floating-point operations of a program -------*- C++ -*-===//
//
// Counts FLOPs and tokens of whole-tensor programs, for throughput reports and for the extent of checks.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_COUNTWORK_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_COUNTWORK_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <optional>

namespace saccade::attn {

struct Work {
  /// Attention: 2·b·h·q·k·(d_k + d_v), including masked pairs. Contractions: two per multiply-add. Other ops do not
  /// count.
  int64_t flops = 0;
  /// Batch × query length of the first attention; 0 without one.
  int64_t tokens = 0;
};

/// The part of an argument that extents can depend on: the shape of a tensor, or the value of an integer scalar.
struct WorkArgument {
  llvm::SmallVector<int64_t, 4> shape;
  int64_t value = 0;
};

/// Counts the work of a call of `function`; nullopt if extents depend on elements of tensors.
std::optional<Work> countWork(mlir::func::FuncOp function, llvm::ArrayRef<WorkArgument> arguments);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_COUNTWORK_H
