//===- Tolerance.h - When a computed result counts as right -------*- C++ -*-===//
//
// The one tolerance rule of the project and all its constants. A result may be twice as far from the
// exact one as plain unfused evaluation in the same types is (Dao et al., flash-attention's own tests), and,
// for a single attention, no further than rounding its terms can carry it.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_REFERENCE_TOLERANCE_H
#define SACCADE_REFERENCE_TOLERANCE_H

#include "saccade/Reference/Interpreter.h"
#include <string>

namespace saccade::reference {

namespace tolerance {
/// Error allowed, in units of the largest error of plain evaluation and of the rounding floor.
constexpr double referenceFactor = 2, floorFactor = 2;
/// The floor is the most that adding and subtracting this in the result type can lose: two roundings of at most
/// eps/2 of the largest sum each, so eps · (max |exact| + floorProbe). What they do lose of the numbers at hand is only
/// a sample, 0 by chance where elements are few or round.
constexpr double floorProbe = 0.3;
/// What the oracle itself may be off by, relative to the largest element; tested against 113-bit arithmetic.
constexpr double oracleError = 1e-12;
/// Second bound: the smallest number of the result type, units of eps(result type) · Σ p |v|, and of (keys + depth) · eps(sum type) · conditioned magnitude.
constexpr double outputFactor = 2, accumulationFactor = 4;
/// Mean error against the mean error of plain evaluation: above this it is worth a look, not a failure.
constexpr double meanAlarm = 1.1;
} // namespace tolerance

/// How a result compares with the reference.
struct Comparison {
  enum Verdict {
    Agrees,
    NotFinite, ///< NaN or Inf in one where the other has none, or has another
    TooFar,    ///< beyond the error of plain attention
    OutOfBound ///< beyond what rounding of the terms allows
  } verdict = Agrees;
  int64_t worst = -1; ///< row-major position of the first element that fails, else of the largest error; -1: no element
  double maxError = 0;          ///< largest |actual − exact|
  double allowed = 0;           ///< what the rule allows
  double ratio = 0;             ///< maxError / allowed; at most 1 where it agrees
  double meanRatio = 0;         ///< mean |actual − exact| / mean |plain − exact|; 0 where the latter is 0
  double actual = 0, exact = 0; ///< the values at `worst`

  bool agrees() const { return verdict == Agrees; }
  /// One line for people.
  std::string describe() const;
};

/// Compares `actual` with `exact` (Precision::Exact) under the largest error that plain evaluation makes, once for each
/// order of its sums (Precision::Rounded and RoundedReversed): one order may err half as much as another by chance.
/// All are of one shape; the element type of `actual` is the result type. Integers must be equal. `magnitude`, where
/// given, adds the second bound.
Comparison compare(const Tensor &exact, llvm::ArrayRef<Tensor> plain, const Tensor &actual,
                   const Magnitude *magnitude = nullptr);

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_TOLERANCE_H
