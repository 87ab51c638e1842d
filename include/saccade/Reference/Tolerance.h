//===- Tolerance.h - Tolerance of computed results ----------------*- C++ -*-===//
//
// The tolerance rule of the project. The error of a result may be twice that of plain unfused evaluation in the same
// types (the rule of FlashAttention's tests, Dao et al.) and, for a single attention, at most the bound of rounding its
// terms.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_REFERENCE_TOLERANCE_H
#define SACCADE_REFERENCE_TOLERANCE_H

#include "saccade/Reference/Interpreter.h"
#include <string>

namespace saccade::reference {

namespace tolerance {
/// Allowed error, in units of the largest error of plain evaluation and of the rounding floor.
constexpr double referenceFactor = 2, floorFactor = 2;
/// The rounding floor is eps · (max |exact| + floorProbe), the bound on the error of adding and subtracting this value
/// in the result type (two roundings). The actual error on the elements can be 0 by chance.
constexpr double floorProbe = 0.3;
/// Error of the oracle itself, relative to the largest element; tested against long double.
constexpr double oracleError = 1e-12;
/// Second bound: the smallest value of the result type + outputFactor · eps(result type) · Σ p |v| + accumulationFactor
/// · (keys + depth) · eps(sum type) · conditioned magnitude.
constexpr double outputFactor = 2, accumulationFactor = 4;
/// Ratio of the mean error to that of plain evaluation above which a warning is due; not a failure.
constexpr double meanAlarm = 1.1;
} // namespace tolerance

/// Result of a comparison with the reference.
struct Comparison {
  enum Verdict {
    Agrees,
    NotFinite, ///< NaN or Inf in only one of the two, or of different kind
    TooFar,    ///< larger than the first bound, from plain evaluation
    OutOfBound ///< larger than the second bound, from rounding of the terms
  } verdict = Agrees;
  int64_t worst = -1;           ///< position of the first failing element, else of the largest error; -1: no elements
  double maxError = 0;          ///< |actual − exact| at `worst`
  double allowed = 0;           ///< allowed error at `worst`
  double ratio = 0;             ///< maxError / allowed; at most 1 if the results agree
  double meanRatio = 0;         ///< mean |actual − exact| / mean |plain − exact|; 0 if the latter is 0
  double actual = 0, exact = 0; ///< the values at `worst`

  bool agrees() const { return verdict == Agrees; }
  /// One-line summary.
  std::string describe() const;
};

/// Compares `actual` with `exact` (Precision::Exact). `plain` holds plain evaluations in different orders of summation
/// (Precision::Rounded and RoundedReversed); the largest error counts, since one order can be accurate by chance. All
/// tensors have one shape; the element type of `actual` is the result type. Integers must be equal. `magnitude`, if not
/// null, adds the second bound.
Comparison compare(const Tensor &exact, llvm::ArrayRef<Tensor> plain, const Tensor &actual,
                   const Magnitude *magnitude = nullptr);

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_TOLERANCE_H
