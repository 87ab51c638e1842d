//===- Tolerance.cpp - Tolerance of computed results ------------------------------===//
#include "saccade/Reference/Tolerance.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;

/// Equal values, or both NaN.
static bool sameKind(double a, double b) { return (std::isnan(a) && std::isnan(b)) || a == b; }

static Comparison compareIntegers(const Tensor &exact, const Tensor &actual) {
  Comparison comparison;
  for (int64_t i = 0; i < exact.size(); ++i) {
    double error = std::abs(double(actual.values[i].integer) - double(exact.values[i].integer));
    if (actual.values[i].integer == exact.values[i].integer || error < comparison.maxError)
      continue;
    comparison = {Comparison::TooFar,
                  i,
                  error,
                  0,
                  INFINITY,
                  0,
                  double(actual.values[i].integer),
                  double(exact.values[i].integer)};
  }
  return comparison;
}

/// Bound on the rounding error of element `i`, from the magnitudes of its terms.
static double boundOf(const Magnitude &magnitude, Type type, int64_t i) {
  double outputEpsilon = std::max(epsilonOf(type), epsilonOf(magnitude.inputType));
  double sumEpsilon = epsilonOf(attn::getScoreType(magnitude.inputType));
  double weighted = magnitude.weighted.values[i].real, conditioned = magnitude.conditioned.values[i].real;
  // Subnormal results are rounded to multiples of the smallest subnormal value.
  double smallest = llvm::APFloat::getSmallest(cast<FloatType>(type).getFloatSemantics()).convertToDouble();
  return tolerance::outputFactor * outputEpsilon * weighted + smallest +
         tolerance::accumulationFactor * double(magnitude.keys + magnitude.depth) * sumEpsilon * conditioned;
}

/// Maximum and sum of the errors of `rounded`.
static std::pair<double, double> errorsOf(const Tensor &exact, const Tensor &rounded) {
  assert(exact.size() == rounded.size() && "expected results of one shape");
  double max = 0, sum = 0;
  for (auto [value, found] : llvm::zip_equal(exact.values, rounded.values)) {
    if (!std::isfinite(value.real) || !std::isfinite(found.real))
      continue;
    max = std::max(max, std::abs(found.real - value.real));
    sum += std::abs(found.real - value.real);
  }
  return {max, sum};
}

Comparison saccade::reference::compare(const Tensor &exact, ArrayRef<Tensor> plain, const Tensor &actual,
                                       const Magnitude *magnitude) {
  assert(exact.size() == actual.size() && "expected results of one shape");
  if (!actual.isReal())
    return compareIntegers(exact, actual);
  Type type = actual.elementType;

  double referenceError = 0, sumOfReferenceErrors = 0;
  for (const Tensor &rounded : plain) {
    auto [max, sum] = errorsOf(exact, rounded);
    referenceError = std::max(referenceError, max);
    sumOfReferenceErrors = std::max(sumOfReferenceErrors, sum);
  }
  double largest = 0;
  for (Scalar value : exact.values)
    if (std::isfinite(roundTo(type, value.real)))
      largest = std::max(largest, std::abs(value.real));
  double floor = epsilonOf(type) * (largest + tolerance::floorProbe), oracleError = tolerance::oracleError * largest;

  Comparison comparison;
  comparison.allowed = tolerance::referenceFactor * referenceError + tolerance::floorFactor * floor + oracleError;
  double sumOfErrors = 0;
  auto report = [&](Comparison::Verdict verdict, int64_t i, double error, double allowed) {
    // Keep the first failure; without a failure, keep the largest error.
    if (!comparison.agrees() ||
        (verdict == Comparison::Agrees && comparison.worst >= 0 && error <= comparison.maxError))
      return;
    comparison.verdict = verdict;
    comparison.worst = i;
    comparison.maxError = error;
    comparison.allowed = allowed;
    comparison.actual = actual.values[i].real;
    comparison.exact = exact.values[i].real;
  };
  double allowed = comparison.allowed;
  for (int64_t i = 0; i < exact.size(); ++i) {
    double value = exact.values[i].real, found = actual.values[i].real, held = roundTo(type, value);
    if (!std::isfinite(held) || !std::isfinite(found)) {
      // An overflow that plain evaluation has too is accepted.
      bool overflows = std::isfinite(held) && llvm::any_of(plain, [&](const Tensor &rounded) {
                         return !std::isfinite(rounded.values[i].real) && sameKind(rounded.values[i].real, found);
                       });
      bool agrees = sameKind(held, found) || overflows;
      report(agrees ? Comparison::Agrees : Comparison::NotFinite, i, agrees ? 0 : INFINITY, allowed);
      continue;
    }
    double error = std::abs(found - value);
    sumOfErrors += error;
    if (error > allowed)
      report(Comparison::TooFar, i, error, allowed);
    else if (double bound = magnitude ? boundOf(*magnitude, type, i) + oracleError : INFINITY; error > bound)
      report(Comparison::OutOfBound, i, error, bound);
    else
      report(Comparison::Agrees, i, error, allowed);
  }
  comparison.ratio = comparison.maxError == 0 ? 0 : comparison.maxError / comparison.allowed;
  comparison.meanRatio = sumOfReferenceErrors == 0 ? 0 : sumOfErrors / sumOfReferenceErrors;
  return comparison;
}

std::string Comparison::describe() const {
  if (worst < 0)
    return "equal (no elements)";
  StringRef verdictText = verdict == Agrees      ? "agrees"
                          : verdict == NotFinite ? "differs in NaN or Inf"
                          : verdict == TooFar    ? "differs by more than twice the error of plain evaluation"
                                                 : "differs by more than the rounding of its terms allows";
  return llvm::formatv("{0}: error {1:e} of {2:e} allowed (ratio {3:f3}) at element {4}: found {5:e}, expected {6:e}",
                       verdictText, maxError, allowed, ratio, worst, actual, exact)
      .str();
}
