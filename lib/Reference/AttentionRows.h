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
  int64_t batch, head, position;
  /// exp(score − max) / sum for every key up to the length, in order; 0 where masked. Empty where no key counts.
  llvm::ArrayRef<double> weights;
  llvm::ArrayRef<double> scores;
  double logSumExp; ///< −inf where no key counts
};

/// Which part of the batches, heads and queries of attention is wanted.
struct AttentionRange {
  int64_t batch, batches, head, heads, position, positions;

  /// The part that `box` of a result needs whose dimensions are named `dims`; log-sum-exps lack depth.
  static AttentionRange of(const Box &box, llvm::ArrayRef<attn::Dim> dims);
};

/// The dimensions of result number `result`: those of the output, or b, h, s as far as the output has them.
llvm::SmallVector<attn::Dim> resultDims(attn::AttentionOp op, unsigned result);

/// Makes queries, keys and values known as far as the range needs them and calls `visit` for each of its rows.
mlir::LogicalResult forEachAttentionRow(attn::AttentionOp op, Frame &frame, const AttentionRange &range,
                                        llvm::function_ref<void(const Scorer &, const AttentionRow &)> visit);

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_ATTENTIONROWS_H
