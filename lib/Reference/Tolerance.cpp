//===- Tolerance.cpp - Tolerance of computed results ------------------------------===//
#include "saccade/Reference/Tolerance.h"
#include "ErrorStatistics.h"
#include "Kernels.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;

/// Equal values, or both NaN.
static bool sameKind(double a, double b) { return (std::isnan(a) && std::isnan(b)) || a == b; }

/// Integers must be equal. The first one that differs is reported.
static Comparison compareIntegers(const Tensor &exact, const Tensor &actual) {
  Comparison comparison;
  for (int64_t i = 0; i < exact.size(); ++i) {
    int64_t value = exact.values[i].integer, found = actual.values[i].integer;
    if (found == value)
      continue;
    comparison.verdict = Comparison::TooFar;
    comparison.worst = i;
    comparison.actual = double(found);
    comparison.exact = double(value);
    comparison.maxError = std::abs(comparison.actual - comparison.exact);
    comparison.ratio = INFINITY;
    break;
  }
  return comparison;
}

static bool isNarrow(Type type) { return type.getIntOrFloatBitWidth() < 32; }

namespace {

/// Bound on the rounding error of an element, from the magnitudes of its terms. Infinite without magnitudes.
class TermBound {
public:
  TermBound(const Magnitude *magnitude, Type type) : magnitude(magnitude) {
    if (!magnitude)
      return;
    outputFactor = tolerance::outputFactor * std::max(epsilonOf(type), epsilonOf(magnitude->inputType));
    // Those of a sum over the keys: in a part, and of parts.
    int64_t roundings = std::min(magnitude->keys, sumLength) + magnitude->keys / sumLength;
    accumulationFactor = tolerance::accumulationFactor * double(roundings + magnitude->depth) *
                         epsilonOf(attn::getScoreType(magnitude->inputType));
    smallest = llvm::APFloat::getSmallest(cast<FloatType>(type).getFloatSemantics()).convertToDouble();
  }

  double operator()(int64_t i) const {
    if (!magnitude)
      return INFINITY;
    double quantized = magnitude->quantized.size() == 0 ? 0 : magnitude->quantized.values[i].real;
    return outputFactor * magnitude->weighted.values[i].real + smallest +
           accumulationFactor * magnitude->conditioned.values[i].real + quantized;
  }

private:
  const Magnitude *magnitude;
  double outputFactor = 0, accumulationFactor = 0;
  double smallest = 0; ///< subnormal results are rounded to multiples of the smallest subnormal value
};

/// The bound of a fused attention with 16-bit inputs; see docs/internals/testing.md.
class FusedBound {
public:
  FusedBound(const ResultContext &context, const Tensor &exact, const Tensor &actual, double largest)
      : magnitude(context.magnitude), exact(exact), unitOf(actual.elementType) {
    if (!magnitude || !context.fused || !magnitude->isOfArguments || !isNarrow(magnitude->inputType))
      return;
    isKnown = true;
    half = epsilonOf(magnitude->inputType) / 2;
    Type wide = attn::getScoreType(magnitude->inputType);
    plain = tolerance::referenceFactor * ErrorStatistics::of(wide, exact, *context.fused, {}).max;
    floor = tolerance::floorFactor * epsilonOf(wide) * (largest + tolerance::floorProbe);
  }

  /// `scores` is the effect of rounding scores.
  double operator()(int64_t i, double found, double scores) const {
    if (!isKnown)
      return INFINITY;
    double value = exact.values[i].real;
    double independent =
        tolerance::weightFactor * std::abs(value) + tolerance::spreadFactor * magnitude->spread.values[i].real;
    double weights = std::min(tolerance::weightFactor * magnitude->weighted.values[i].real, independent);
    return std::max(unitOf(value), unitOf(found)) / 2 + half * weights + std::max(plain, scores) + floor;
  }

  /// The largest error apart from rounding to 16 bits; nullopt if nothing is known.
  std::optional<double> otherErrors() const { return isKnown ? std::optional(plain + floor) : std::nullopt; }

private:
  const Magnitude *magnitude;
  const Tensor &exact;
  UnitOf unitOf;
  bool isKnown = false;
  double half = 0, plain = 0, floor = 0;
};

/// What rounding of scores causes in the sums over all elements.
struct RoundingOfScores {
  double mean = 0;      ///< a bound on the mean error
  double deviation = 0; ///< of the sum of the signed errors of rows
};

} // namespace

/// The errors of rows are independent, and their absolute values have means of at most a_r, the mean of `rounding` / 6
/// in the row. The mean of all exceeds the mean of a_r by more than 6 √(Σ a_r²) / rows with a probability of e^(−18):
/// it is a Lipschitz function of normal deviates, to which sums of many roundings are close (Tsirelson, Ibragimov and
/// Sudakov, 1976).
static RoundingOfScores sumsOfRounding(const Tensor &rounding, ArrayRef<int64_t> rowNumbers) {
  llvm::DenseMap<int64_t, double> rows;
  double sum = 0, squares = 0;
  for (auto [i, bound] : llvm::enumerate(rounding.values)) {
    double deviation = std::isfinite(bound.real) ? bound.real / tolerance::roundingDeviations : 0;
    rows[rowNumbers.empty() ? int64_t(i) : rowNumbers[i]] += deviation;
    sum += deviation;
  }
  for (auto &[number, deviation] : rows)
    squares += deviation * deviation;
  double deviation = std::sqrt(squares), elements = double(std::max<int64_t>(rounding.size(), 1));
  return {(sum + tolerance::roundingDeviations * deviation) / elements, deviation};
}

/// Judges the mean and the signed mean of the errors, after every single error was found to be allowed. `fusedError` is
/// the largest error of a fused attention before it rounds to 16 bits, if that is known, and `cancelled` the mean error
/// of terms that cancel.
static void compareMeans(Comparison &comparison, Type type, const ErrorStatistics &found,
                         ArrayRef<ErrorStatistics> plain, std::optional<double> fusedError, double floor,
                         double oracleError, RoundingOfScores scores, double cancelled) {
  double plainMean = 0, plainSigned = 0;
  for (const ErrorStatistics &each : plain) {
    plainMean = std::max(plainMean, each.mean);
    plainSigned = std::max(plainSigned, std::abs(each.signedSum));
  }
  comparison.mean = found.mean;
  comparison.meanRatio = plainMean == 0 ? 0 : found.mean / plainMean;
  double rows = double(std::max<int64_t>(found.rows, 1));
  bool narrow = isNarrow(type);
  double factor = narrow ? tolerance::narrowMeanFactor * (1 + 1 / std::sqrt(rows)) : tolerance::wideMeanFactor;
  double rounding = narrow ? found.meanUnit / 4 : found.meanUnit;
  comparison.meanAllowed = std::max(factor * std::max(plainMean, rounding), factor * rounding + scores.mean) +
                           (narrow ? 0 : tolerance::floorFactor * floor / rows);
  comparison.meanAllowed += oracleError + (narrow ? cancelled : 0);
  // A sum of R with random signs deviates by √(Σ R²). If the errors are known to be those of rounding, that is a bound
  // too.
  double deviation = found.signedDeviation;
  if (fusedError)
    deviation = std::min(deviation, found.expectedDeviation + *fusedError * double(found.elements) + scores.deviation);
  comparison.bias = found.unitSum == 0 ? 0 : found.signedSum / (found.unitSum / 2);
  if (!comparison.agrees())
    return;
  if (comparison.mean > comparison.meanAllowed)
    comparison.verdict = Comparison::MeanTooFar;
  else if (narrow && std::abs(comparison.bias) > tolerance::biasUnits &&
           std::abs(found.signedSum) > tolerance::biasReference * plainSigned &&
           std::abs(found.signedSum) > tolerance::biasDeviations * deviation)
    comparison.verdict = Comparison::Biased;
}

static Comparison compareFloats(const Tensor &exact, ArrayRef<Tensor> plain, const Tensor &actual,
                                const ResultContext &context) {
  Type type = actual.elementType;

  double referenceError = 0;
  SmallVector<ErrorStatistics> plainStatistics;
  for (const Tensor &rounded : plain) {
    plainStatistics.push_back(ErrorStatistics::of(type, exact, rounded, context.rows));
    referenceError = std::max(referenceError, plainStatistics.back().max);
  }
  double largest = 0;
  for (Scalar value : exact.values)
    if (std::isfinite(roundTo(type, value.real)))
      largest = std::max(largest, std::abs(value.real));
  double floor = epsilonOf(type) * (largest + tolerance::floorProbe), oracleError = tolerance::oracleError * largest;
  TermBound termBound(context.magnitude, type);
  FusedBound fusedBound(context, exact, actual, largest);

  Comparison comparison;
  comparison.allowsScores = context.scoreRounding != nullptr;
  double plainError = tolerance::referenceFactor * referenceError;
  comparison.allowed = plainError + tolerance::floorFactor * floor + oracleError;
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
  for (int64_t i = 0; i < exact.size(); ++i) {
    double value = exact.values[i].real, found = actual.values[i].real, held = roundTo(type, value);
    double scores = context.scoreRounding ? context.scoreRounding->values[i].real : 0;
    double allowed = std::max(plainError, scores) + tolerance::floorFactor * floor + oracleError;
    if (!std::isfinite(held) || !std::isfinite(found)) {
      // An overflow that plain evaluation has too is accepted.
      bool overflows = std::isfinite(held) && llvm::any_of(plain, [&](const Tensor &rounded) {
                         return !std::isfinite(rounded.values[i].real) && sameKind(rounded.values[i].real, found);
                       });
      // A score at a threshold may leave a row without keys, or be its only one.
      bool isAtThreshold = std::isinf(scores) && !std::isnan(held) && !std::isnan(found);
      bool agrees = sameKind(held, found) || overflows || isAtThreshold;
      report(agrees ? Comparison::Agrees : Comparison::NotFinite, i, agrees ? 0 : INFINITY, allowed);
      continue;
    }
    double error = std::abs(found - value);
    double bound = std::min(termBound(i) + scores, fusedBound(i, found, scores)) + oracleError;
    if (error > allowed)
      report(Comparison::TooFar, i, error, allowed);
    else if (error > bound)
      report(Comparison::OutOfBound, i, error, bound);
    else
      report(Comparison::Agrees, i, error, std::min(allowed, bound));
  }
  comparison.ratio = comparison.maxError == 0 ? 0 : comparison.maxError / comparison.allowed;
  double cancelled = 0;
  if (const Tensor *terms = context.gradientTerms) {
    for (Scalar term : terms->values)
      cancelled += term.real / double(terms->size());
    cancelled *= tolerance::cancellationFactor * epsilonOf(attn::getScoreType(type));
  }
  const Magnitude *magnitude = fusedBound.otherErrors() ? context.magnitude : nullptr;
  compareMeans(comparison, type, ErrorStatistics::of(type, exact, actual, context.rows, magnitude), plainStatistics,
               fusedBound.otherErrors(), floor, oracleError,
               context.scoreRounding ? sumsOfRounding(*context.scoreRounding, context.rows) : RoundingOfScores(),
               cancelled);
  return comparison;
}

void NonFiniteCount::add(double value) {
  nans += std::isnan(value);
  infinities += std::isinf(value);
}

Comparison saccade::reference::compare(const Tensor &exact, ArrayRef<Tensor> plain, const Tensor &actual,
                                       const ResultContext &context) {
  assert(exact.size() == actual.size() && "expected results of one shape");
  if (!actual.isReal())
    return compareIntegers(exact, actual);
  Comparison comparison;
  if (const Tensor *overflow = context.scoreOverflow) {
    Tensor compared = actual;
    int64_t overflowing = 0;
    for (int64_t i = 0; i < exact.size(); ++i)
      if (overflow->values[i].real != 0) {
        compared.values[i].real = roundTo(actual.elementType, exact.values[i].real);
        ++overflowing;
      }
    comparison = compareFloats(exact, plain, compared, context);
    comparison.overflowing = overflowing;
  } else {
    comparison = compareFloats(exact, plain, actual, context);
  }
  comparison.hasFinite = exact.size() == 0;
  for (auto [wide, found] : llvm::zip_equal(exact.values, actual.values)) {
    double expected = roundTo(actual.elementType, wide.real);
    comparison.expected.add(expected);
    comparison.found.add(found.real);
    comparison.hasFinite |= std::isfinite(expected) && std::isfinite(found.real);
  }
  return comparison;
}

/// What is not finite, or was not compared.
static std::string describeRest(const Comparison &comparison) {
  std::string text;
  auto add = [&](StringRef what, int64_t found, int64_t expected) {
    if (found || expected)
      text += llvm::formatv("; {0}: {1} found, {2} expected", what, found, expected).str();
  };
  add("NaN", comparison.found.nans, comparison.expected.nans);
  add("Inf", comparison.found.infinities, comparison.expected.infinities);
  if (comparison.overflowing)
    text += llvm::formatv("; {0} not compared, since scores of their rows overflow", comparison.overflowing).str();
  return text;
}

std::string Comparison::describe() const { return describeErrors() + describeRest(*this); }

std::string Comparison::describeErrors() const {
  if (worst < 0)
    return "equal";
  if (verdict == Agrees && !hasFinite)
    return "agrees, but no element is finite in both, so no error was measured";
  if (verdict == MeanTooFar)
    return llvm::formatv("differs in the mean error: {0:e} of {1:e} allowed; largest error {2:e} at element {3}", mean,
                         meanAllowed, maxError, worst)
        .str();
  if (verdict == Biased)
    return llvm::formatv(
               "differs in the mean of signed errors: {0:f2} halves of a unit of the result; mean error {1:e}", bias,
               mean)
        .str();
  StringRef verdictText = verdict == Agrees      ? "agrees"
                          : verdict == NotFinite ? "differs in NaN or Inf"
                          : verdict == TooFar    ? "differs by more than twice the error of plain evaluation"
                                                 : "differs by more than the rounding of its terms allows";
  StringRef beyond = verdict == TooFar && allowsScores ? " and more than rounding of scores changes" : "";
  return llvm::formatv(
             "{0}{1}: error {2:e} of {3:e} allowed (ratio {4:f3}) at element {5}: found {6:e}, expected {7:e}",
             verdictText, beyond, maxError, allowed, ratio, worst, actual, exact)
      .str();
}
