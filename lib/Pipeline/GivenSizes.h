//===- GivenSizes.h - Numbers of an attention ahead of a call -----*- C++ -*-===//
#ifndef SACCADE_LIB_PIPELINE_GIVENSIZES_H
#define SACCADE_LIB_PIPELINE_GIVENSIZES_H

#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Pipeline/Explain.h"

namespace saccade {

/// Extents and integers of one attention, as far as the program and what a user gives tell them.
class KnownSizes {
public:
  /// `isUsed` is set for the sizes that were asked for. `names`: of the function's arguments.
  KnownSizes(attn::AttentionOp op, llvm::StringRef function, llvm::ArrayRef<llvm::StringRef> names,
             const std::vector<GivenSize> &sizes, std::vector<bool> &isUsed);

  /// Batch, heads, queries and keys; nothing where they are not known.
  std::optional<int64_t> batches, heads, queries, keys;

  /// An integer scalar: a constant, an argument that is given, the extent of an operand, or computed from such.
  std::optional<int64_t> valueOf(mlir::Value value) { return evaluate(value, 8); }
  /// The extent of any tensor.
  std::optional<int64_t> extentOf(mlir::Value tensor, unsigned dim);
  /// What a user would call a value: the name of an argument, or nothing.
  std::string nameOf(mlir::Value value);

private:
  std::optional<int64_t> given(llvm::StringRef name);
  std::optional<int64_t> evaluate(mlir::Value value, unsigned depth);

  attn::AttentionOp op;
  llvm::StringRef function;
  llvm::ArrayRef<llvm::StringRef> names;
  const std::vector<GivenSize> &sizes;
  std::vector<bool> &isUsed;
};

} // namespace saccade

#endif // SACCADE_LIB_PIPELINE_GIVENSIZES_H
