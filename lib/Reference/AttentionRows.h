//===- AttentionRows.h - attn.attention, row by row -----------------*- C++ -*-===//
//
// Row-wise evaluation of attention, shared by its results and by the magnitudes of their terms.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_REFERENCE_ATTENTIONROWS_H
#define SACCADE_REFERENCE_ATTENTIONROWS_H

#include "Scoring.h"

namespace saccade::reference {

/// One row of attention: a query of a head of a batch, and its probabilities.
struct AttentionRow {
  int64_t batch, head;
  int64_t position;   ///< within its batch
  int64_t tokenIndex; ///< row in the query and result tensors; differs from `position` for ragged sequences
  /// Probabilities exp(score − max) / sum of the keys up to the length, or weights by stick-breaking; 0 if masked, or
  /// with a normalizer of each score. Empty if the row of a softmax attends to neither a key nor a sink.
  llvm::ArrayRef<double> weights;
  /// Weights after the weight region, or those of a normalizer: the factors of the values.
  llvm::ArrayRef<double> factors;
  llvm::ArrayRef<double> scores;
  double sum;       ///< the divisor of the probabilities, of keys and sink; 0 if the row is empty or has none
  double logSumExp; ///< −inf if the row is empty
  double lseLow;    ///< what its rounding took
};

/// A range of batches, heads and queries.
struct AttentionRange {
  int64_t batch, batches, head, heads, position, positions;

  /// The range covered by `box` of a result with dimensions `dims`.
  static AttentionRange of(const Box &box, llvm::ArrayRef<attn::Dim> dims);
};

/// Computes the queries, keys and values that the range depends on, and calls `visit` for each row of it.
mlir::LogicalResult forEachAttentionRow(attn::AttentionOp op, Frame &frame, const AttentionRange &range,
                                        llvm::function_ref<mlir::LogicalResult(Scorer &, const AttentionRow &)> visit);

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_ATTENTIONROWS_H
