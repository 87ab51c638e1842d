//===- GradientRegion.h - The gradient region of an attention ------*- C++ -*-===//
//
// Derives the region `gradient` of `attn.gradient` from the score, weight and tally regions of an attention.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_GRADIENTREGION_H
#define SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_GRADIENTREGION_H

#include "saccade/Dialect/Attn/IR/Position.h"

namespace saccade::attn {

/// The captures of the gradient op. Those of the attention come first.
struct GradientCaptures {
  llvm::SmallVector<mlir::Value> values;
  llvm::BitVector differentiated; ///< of the captures of the attention: the ones whose gradients are computed
  /// For each tally the capture with the gradient of its result, which has the shape of the result; nullopt if the loss
  /// does not depend on the tally.
  llvm::SmallVector<std::optional<unsigned>> tallyGradients;
  /// Captures with the position of element 0, except that of keys. nullopt for 0.
  PositionOf<std::optional<unsigned>> at;
  /// The capture with the cumulative lengths of ragged queries.
  std::optional<unsigned> cuSeqlensQ;
};

/// Fills `region` and returns the captures of the reads whose gradients it yields, in ascending order: the attribute
/// `reads` of `attn.gradient`. Fails with a diagnostic if a region of `op` cannot be differentiated.
mlir::FailureOr<llvm::SmallVector<int64_t>> buildGradientRegion(AttentionOp op, const GradientCaptures &captures,
                                                                mlir::Region &region);

} // namespace saccade::attn

#endif // SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_GRADIENTREGION_H
