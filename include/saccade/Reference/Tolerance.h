//===- Tolerance.h - Tolerance of computed results ----------------*- C++ -*-===//
//
// The tolerance rule of the project. The error of a result may be twice that of plain unfused evaluation in the same
// types (the rule of FlashAttention's tests, Dao et al.) and, for a single attention, at most the bound of rounding its
// terms. Plain evaluation of attention with `qk_type` rounds queries and keys to it. The mean error and the mean signed
// error have bounds of their own. docs/internals/testing.md derives them.
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
/// Allowed effect of rounding the scores, in deviations of the sum of its errors, if that is more than referenceFactor
/// times the error of plain evaluation. An error is uniform within half an ulp, so the sum exceeds it with a
/// probability of 2 e^(−18). Few rows may have scores whose errors matter, so plain evaluation is accurate by chance.
constexpr double roundingDeviations = 6;
/// The rounding floor is eps · (max |exact| + floorProbe), the bound on the error of adding and subtracting this value
/// in the result type (two roundings). The actual error on the elements can be 0 by chance.
constexpr double floorProbe = 0.3;
/// Error of the oracle itself, relative to the largest element; tested against long double.
constexpr double oracleError = 1e-12;
/// Second bound: the smallest value of the result type + outputFactor · eps(result type) · Σ p |v| + accumulationFactor
/// · (roundings + depth) · eps(sum type) · conditioned magnitude. A sum over n keys has min(n, 128) + n / 128
/// roundings, because it is computed in parts.
/// With `qk_type` the effect of rounding queries and keys is added (`Magnitude::quantized`).
constexpr double outputFactor = 2, accumulationFactor = 4;
/// Bound of a fused attention with 16-bit inputs: half a unit of the result + eps/2 of the inputs · min(weightFactor ·
/// Σ p |v|, weightFactor · |result| + spreadFactor · √(Σ p² v²)) + referenceFactor · the largest error of
/// Precision::Fused + floorFactor · the rounding floor of f32.
constexpr double weightFactor = 2, spreadFactor = 4;
/// Allowed mean error, in units of the larger of the mean error of plain evaluation and the mean error of rounding the
/// result. Rounding to 16 bits has a mean error of 1/4 unit; results of f32 and f64 are allowed 1 unit. Tensor cores
/// truncate sums, whose errors have a larger mean than those of rounding.
constexpr double narrowMeanFactor = 1.5, wideMeanFactor = 2.5;
/// The score gradients of a row are differences: p (dP − delta). If they cancel, the mean error of a 16-bit gradient is
/// that of the sums dP and delta: + cancellationFactor · eps(sum type) · the mean magnitude of their terms.
constexpr double cancellationFactor = 1;
/// A 16-bit result is biased if the mean signed error exceeds biasUnits · 1/2 unit, biasReference · that of
/// plain evaluation, and biasDeviations standard deviations of the sum of the errors of rows.
constexpr double biasUnits = 0.5, biasReference = 2, biasDeviations = 6;
} // namespace tolerance

/// Elements of a tensor that are not finite.
struct NonFiniteCount {
  int64_t nans = 0, infinities = 0;
  void add(double value);
};

/// Result of a comparison with the reference.
struct Comparison {
  enum Verdict {
    Agrees,
    NotFinite,  ///< NaN or Inf in only one of the two, or of different kind
    TooFar,     ///< larger than the first bound, from plain evaluation
    OutOfBound, ///< larger than the second bound, from rounding of the terms
    MeanTooFar, ///< every error is allowed, but their mean is not
    Biased      ///< the errors are allowed, but most have one sign
  } verdict = Agrees;
  int64_t worst = -1;               ///< position of the first failing element, else of the largest error; -1: none
  double maxError = 0;              ///< |actual − exact| at `worst`
  double allowed = 0;               ///< allowed error at `worst`
  double ratio = 0;                 ///< maxError / allowed; at most 1 if the results agree
  double meanRatio = 0;             ///< mean |actual − exact| / mean |plain − exact|; 0 if the latter is 0
  double mean = 0, meanAllowed = 0; ///< mean |actual − exact| and its bound
  double bias = 0;                  ///< mean signed error, in halves of a unit of the result; −1 for truncation
  double actual = 0, exact = 0;     ///< the values at `worst`
  int64_t overflowing = 0;          ///< elements that were not compared, because scores of their rows overflow
  NonFiniteCount found, expected;   ///< NaN and infinities of the compared tensors
  bool hasFinite = true;            ///< whether an element is finite in both
  bool allowsScores = false;        ///< whether the first bound includes what rounding of scores changes

  bool agrees() const { return verdict == Agrees; }
  /// One-line summary.
  std::string describe() const;

private:
  std::string describeErrors() const;
};

/// What is known of a result beyond its values. Everything is optional.
struct ResultContext {
  const Magnitude *magnitude = nullptr;  ///< adds the second bound
  const Tensor *scoreRounding = nullptr; ///< by Evaluation::scoreRounding; the least that these errors are allowed
  const Tensor *scoreOverflow = nullptr; ///< by Evaluation::scoreOverflow; these elements are not compared
  const Tensor *fused = nullptr;         ///< by Precision::Fused; adds the bound of fused attention
  const Tensor *gradientTerms = nullptr; ///< by Evaluation::gradientTerms; adds their error to the bound of the mean
  llvm::ArrayRef<int64_t> rows = {};     ///< the row of each element; if empty, each element is a row
};

/// Compares `actual` with `exact` (Precision::Exact). `plain` holds plain evaluations in different orders of summation
/// (Precision::Rounded and RoundedReversed); the largest error counts, since one of them can be accurate by chance. All
/// tensors have one shape; the element type of `actual` is the result type. Integers must be equal.
Comparison compare(const Tensor &exact, llvm::ArrayRef<Tensor> plain, const Tensor &actual,
                   const ResultContext &context = {});

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_TOLERANCE_H
