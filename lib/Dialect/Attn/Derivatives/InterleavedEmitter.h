//===- InterleavedEmitter.h - Two positions for each one ------------*- C++ -*-===//
//
// The operands and results of an attn.linear with two positions and two halves of the head size for each one of
// another.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_INTERLEAVEDEMITTER_H
#define SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_INTERLEAVEDEMITTER_H

#include "LinearEmitter.h"

namespace saccade::attn {

struct InterleavedEmitter : LinearEmitter {
  using LinearEmitter::LinearEmitter;

  /// Two positions for each one of a tensor with dimensions `dims`, and twice the head size if `parts` has four
  /// entries: the upper and the lower half of position 2t, then of 2t + 1; null stands for 0. Without `isInterleaved`
  /// one position and the two halves.
  Value interleaved(llvm::ArrayRef<Value> parts, llvm::ArrayRef<Dim> dims, bool isInterleaved = true);
  /// Positions 2t + 1 of `x`, whose other extents are `extents`, apart from the head size.
  Value oddPositions(Named x, llvm::SmallVector<mlir::OpFoldResult> extents);
  /// 2 · x for lengths or offsets; null for null.
  Value doubled(Value lengths);
  /// `x` with as many heads as `heads` says, each one repeated. `head`: the number of the dimension.
  Value repeatHeads(Value x, unsigned head, mlir::OpFoldResult heads);
};

} // namespace saccade::attn

#endif // SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_INTERLEAVEDEMITTER_H
