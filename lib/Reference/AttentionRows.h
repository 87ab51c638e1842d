//===- AttentionRows.h - attn.attention, row by row -----------------*- C++ -*-===//
//
// Shared by the results of attention and by the magnitudes of their terms.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_REFERENCE_ATTENTIONROWS_H
#define SACCADE_REFERENCE_ATTENTIONROWS_H

#include "Scoring.h"

namespace saccade::reference {

/// One row of attention: a query of a head of a batch, and its probabilities.
struct AttentionRow {
  int64_t batch, head;
  int64_t position; ///< within its batch
  int64_t tokenIndex;    ///< within the query and the results: another one where sequences are packed
  /// exp(score − max) / sum for every key up to the length, in order; 0 where masked. Empty where neither a key nor a
  /// sink counts.
  llvm::ArrayRef<double> weights;
  /// What the weight region makes of them: the factors of the values.
  llvm::ArrayRef<double> factors;
  llvm::ArrayRef<double> scores;
  double logSumExp; ///< −inf where no key counts
};

/// Which part of the batches, heads and queries of attention is wanted.
struct AttentionRange {
  int64_t batch, batches, head, heads, position, positions;

  /// The part that `box` of a result needs whose dimensions are named `dims`; others lack depth.
  static AttentionRange of(const Box &box, llvm::ArrayRef<attn::Dim> dims);
};

/// Makes queries, keys and values known as far as the range needs them and calls `visit` for each of its rows.
mlir::LogicalResult forEachAttentionRow(attn::AttentionOp op, Frame &frame, const AttentionRange &range,
                                        llvm::function_ref<mlir::LogicalResult(Scorer &, const AttentionRow &)> visit);

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_ATTENTIONROWS_H
