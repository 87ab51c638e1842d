//===- ScoreRange.h - What scores can be --------------------------*- C++ -*-===//
//
// Interval analysis of a score region, over floating-point numbers with infinities and NaN.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_SCORERANGE_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_SCORERANGE_H

#include "saccade/Dialect/Attn/IR/Attn.h"
#include <limits>

namespace saccade::attn {

/// The numbers in [low, high], both included and either infinite, and NaN where it may be one.
struct FloatRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool mayBeNaN = true;

  bool isFinite() const;
  bool contains(double number) const;
};

/// What the yielded score can be, whatever the operands hold: any score before the region, any captured float, any
/// integer of its type. Bounds are widened by what rounding in the type of the score, and the functions of `math`, may
/// be off by. Without a region (an empty one) nothing is known: Q·Kᵀ may overflow.
FloatRange analyzeScore(mlir::Region &score);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_SCORERANGE_H
