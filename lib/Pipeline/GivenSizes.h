//===- GivenSizes.h - Sizes of an attention before a call ---------*- C++ -*-===//
#ifndef SACCADE_LIB_PIPELINE_GIVENSIZES_H
#define SACCADE_LIB_PIPELINE_GIVENSIZES_H

#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Pipeline/Explain.h"

namespace saccade {

/// Extents and integers of an attention that follow from the program and the given sizes.
class KnownSizes {
public:
  /// Sets `isUsed` for the sizes that are read. `names`: those of the function's arguments.
  KnownSizes(attn::AttentionOp op, llvm::StringRef function, llvm::ArrayRef<llvm::StringRef> names,
             const std::vector<GivenSize> &sizes, std::vector<bool> &isUsed);

  /// Extents; nullopt if they are not known.
  std::optional<int64_t> batches, heads, queries, keys;

  /// The value of an integer scalar that is a constant, a given argument or an extent, or computed from these.
  std::optional<int64_t> valueOf(mlir::Value value) { return evaluate(value, 8); }
  /// The extent of a tensor.
  std::optional<int64_t> extentOf(mlir::Value tensor, unsigned dim);
  /// The name of the argument that `value` is, or empty.
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
