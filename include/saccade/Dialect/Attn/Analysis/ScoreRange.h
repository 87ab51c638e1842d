//===- ScoreRange.h - Bounds of the scores ------------------------*- C++ -*-===//
//
// Interval analysis of a score region, over floating-point numbers with infinities and NaN.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_SCORERANGE_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_SCORERANGE_H

#include "saccade/Dialect/Attn/IR/Attn.h"
#include <limits>

namespace saccade::attn {

/// The closed interval [low, high], whose bounds may be infinite, and optionally NaN.
struct FloatRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool mayBeNaN = true;

  bool isFinite() const;
  bool contains(double number) const;
};

/// Bounds of the result of a score region, for any incoming score, captured float and integer of its type. They include
/// the rounding of the score type and the errors of `math` functions. For an empty region the result is unbounded:
/// Q·Kᵀ may overflow.
FloatRange analyzeScore(mlir::Region &score);
/// Bounds of a float of a region.
FloatRange analyzeRange(mlir::Value value);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_SCORERANGE_H
