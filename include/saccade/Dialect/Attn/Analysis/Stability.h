//===- Stability.h - Proof that row maxima are finite --------------*- C++ -*-===//
//
// Proves that the online softmax is stable. Its exponents are scores minus their running maximum, so none is positive
// (up to rounding). It remains to prove that the maximum is finite, so that it can be subtracted.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_STABILITY_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_STABILITY_H

#include "saccade/Dialect/Attn/Analysis/ScoreRange.h"

namespace saccade::attn {

/// The steps over keys in which the running row maximum is proved to be finite, or NaN, which propagates.
enum class FiniteMax {
  Never,     ///< not proved; code replaces −∞ by 0
  InOrder,   ///< if steps are taken from the first key on
  EveryStep, ///< in every step, also if it is taken alone
};

struct Stability {
  FiniteMax finiteMax = FiniteMax::Never;
  FloatRange scores;
  /// The reason for the proof, or the case that is guarded against, for reports.
  std::string reason;
};

/// Analyzes the softmax of `op`.
Stability analyzeStability(AttentionOp op);

/// Analyzes a step over keys from its regions. `InOrder` supposes that the first step has the key at position 0. Tables
/// of scores that tiling has made count as any numbers, so the result may be weaker than that of the attention.
Stability analyzeStability(AccumulateOp op);

/// `stabilityAttr`: the result of `attn-prove-stability` on `attn.attention`, a string. `finiteMaxAttr`: the same on
/// an `attn.accumulate` whose running maxima are finite.
inline constexpr llvm::StringLiteral stabilityAttr = "attn.stability", finiteMaxAttr = "attn.finite_max";

/// The value of the attribute; `Never` without it.
FiniteMax getFiniteMax(AttentionOp op);
FiniteMax getFiniteMax(AccumulateOp op);
void setFiniteMax(AttentionOp op, FiniteMax finiteMax);
/// Removes the attribute for `Never`.
void setFiniteMax(AccumulateOp op, FiniteMax finiteMax);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_STABILITY_H
