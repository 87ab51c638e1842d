//===- Stability.h - Whether a softmax can form −∞ − (−∞) ---------*- C++ -*-===//
//
// The certificate of a softmax. Its exponents are scores less the running maximum of these very scores: none is
// positive, up to the rounding of the maximum (half a unit, less than 1). What is left to prove is that the maximum itself
// can be subtracted.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_STABILITY_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_STABILITY_H

#include "saccade/Dialect/Attn/Analysis/ScoreRange.h"

namespace saccade::attn {

/// In which steps over keys a row's running maximum is proved to be finite, or NaN, which shows.
enum class FiniteMax {
  Never,     ///< a guard takes 0 in its place where it is −∞
  InOrder,   ///< where steps are taken from the first key on
  EveryStep, ///< in a step that is taken alone, too
};

struct Stability {
  FiniteMax finiteMax = FiniteMax::Never;
  FloatRange scores;
  /// In a few words why it is proved, or what is guarded against.
  std::string reason;
};

/// What is proved of the softmax of `op`, which is whole.
Stability analyzeStability(AttentionOp op);

/// On `attn.attention` and `attn.accumulate`: what is proved, a string, by `attn-prove-stability`. On a step the unit
/// attribute says that its running maxima are finite.
inline constexpr llvm::StringLiteral stabilityAttr = "attn.stability", finiteMaxAttr = "attn.finite_max";

/// What `stabilityAttr` of a whole attention says; `Never` without it.
FiniteMax getFiniteMax(AttentionOp op);
void setFiniteMax(AttentionOp op, FiniteMax finiteMax);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_STABILITY_H
