//===- ScoreRounding.cpp - What rounding of scores changes --------------------------===//
//
// Scores are f32, or f64. A partial sum P of a dot product, in the order of the sum, is rounded with an error within
// half an ulp of P. It is taken to be uniform, whatever the others are: sub-Gaussian with the variance ulp² / 12 (Arbel
// et al., "On strict sub-Gaussianity, optimal proxy variance and symmetry for bounded random variables", 2020). So a
// sum Σ c δ of such errors is within 6 deviations √(Σ c² ulp² / 12) with the probability 1 − 2 e^(−18) (for errors in
// general: Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019). With `qk_type` the errors
// of rounding queries and keys to int8 are added, which are taken to be uniform within half a step.
//
// The score of a key may thus be anything within e = 6 √(Σ ulp(P)² / 12), and that of a score region is evaluated at
// both ends. A score s' instead of s gives the key the weight p' = r / (1 − p + r) with r = exp(s' − lse), and moves
// the output o = Σ p v by (p' − p) / (1 − p) · (v − o), to first order p (v − o) (s' − s). The changes of all keys are
// added as deviations are, √(Σ c²). Where one key has all the weight, its value is the output, so the bound is 0. The
// log-sum-exp changes by log(1 − p + r), a tally T = Σ p a(s) as the output does. The row maximum is between the
// largest of the least scores and the largest of all.
//
// With a normalizer f in place of the softmax, a key moves the output by (f(s') − f(s)) v. With stick_breaking it also
// multiplies the terms of the keys before it by (1 − σ(s')) / (1 − σ(s)).
//
// At a threshold of a score region a key may lose its weight, or gain it: r is 0 or p is 0.
//
//===----------------------------------------------------------------------===//
#include "AttentionRows.h"
#include "Magnitude.h"
#include "saccade/Reference/Tolerance.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;
using attn::Dim;

/// Roundings of a score beside those of its dot product: by the scale, in the score region, by log2 e, and of the
/// exponential.
static constexpr double roundingsOfScore = 4;

/// The power of two at or below |x|, of which an ulp is the multiple by eps; 0 for 0.
static double binade(double x) { return x == 0 || !std::isfinite(x) ? std::abs(x) : std::ldexp(1, std::ilogb(x)); }

/// √(Σ binade(P)²) over the partial sums P of query · key, from the first element or from the last, whichever is
/// larger. Products are rounded too, unless they are fused with additions.
static double rootOfPartialSums(const Scorer &scorer, const double *query, const double *key) {
  int64_t queryStride = scorer.query.stride(Dim::Depth), keyStride = scorer.key.stride(Dim::Depth);
  int64_t depth = scorer.key.extent(Dim::Depth);
  double products = 0, squares[2] = {};
  for (bool isReversed : {false, true}) {
    double sum = 0;
    products = 0;
    for (int64_t i = 0; i < depth; ++i) {
      int64_t d = isReversed ? depth - 1 - i : i;
      double product = query[d * queryStride] * key[d * keyStride];
      sum += product;
      squares[isReversed] += std::pow(binade(sum), 2);
      products += std::pow(binade(product), 2);
    }
  }
  return std::sqrt(products + std::max(squares[0], squares[1]));
}

namespace {

/// A key of a row with a rounded score.
struct RoundedScore {
  double score;
  double weight;    ///< p'
  double shift;     ///< (p' − p) / (1 − p), by which the output approaches the value; −inf if p is 1 and p' 0. With
                    ///< stick_breaking, the relative change of the rest of the stick
  double factor;    ///< change of the factor of the value, f(p') − f(p) with the weight region f
  double logSumExp; ///< magnitude of its change
};

/// A visible key, and the least and the largest of its rounded scores.
struct KeyRange {
  int64_t key;
  double weight, factor; ///< p and f(p)
  std::array<RoundedScore, 2> ends;
};

} // namespace

/// The same of a normalizer, which gives other keys no other weights.
static FailureOr<RoundedScore> pointwiseWithScore(Scorer &scorer, const KeyRange &range, double score) {
  FailureOr<double> factor = score == -INFINITY ? 0.0 : scorer.modifiedWeight(range.key, score);
  if (failed(factor))
    return failure();
  return RoundedScore{score, 0, 0, *factor - range.factor, 0};
}

/// log(1 + exp(x))
static double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

/// The same of stick_breaking. `later`: the logarithm of what later keys leave of the stick; `exact`: the exact score.
static FailureOr<RoundedScore> stickWithScore(Scorer &scorer, const KeyRange &range, double later, double exact,
                                              double score) {
  double weight =
      score == -INFINITY ? 0 : std::exp(later + std::min(score, 0.0) - std::log1p(std::exp(-std::abs(score))));
  FailureOr<double> factor = scorer.modifiedWeight(range.key, weight);
  if (failed(factor))
    return failure();
  double before = exact == -INFINITY ? 0 : softplus(exact), after = score == -INFINITY ? 0 : softplus(score);
  return RoundedScore{score, weight, std::expm1(before - after), *factor - range.factor, 0};
}

static FailureOr<RoundedScore> withScore(Scorer &scorer, const AttentionRow &row, const KeyRange &range, double score) {
  // r = exp(exponent), which may overflow.
  double p = range.weight, others = 1 - p, exponent = score - row.logSumExp, r = std::exp(exponent);
  RoundedScore result{score, 0, 0, 0, 0};
  if (score == -INFINITY) {
    result.shift = -p / others;
    result.logSumExp = std::abs(std::log1p(-p));
  } else if (exponent > 0) {
    double inverse = std::exp(-exponent);
    result.weight = 1 / (others * inverse + 1);
    result.shift = (1 - p * inverse) * result.weight;
    result.logSumExp = exponent + std::log1p(others * inverse);
  } else {
    result.weight = r / (others + r);
    result.shift = (r - p) / (others + r);
    result.logSumExp = std::abs(std::log1p(r - p));
  }
  FailureOr<double> factor = scorer.modifiedWeight(range.key, result.weight);
  if (failed(factor))
    return failure();
  result.factor = *factor - range.factor;
  return result;
}

/// The visible keys of `row` that have a weight, or have one if their scores are rounded.
static FailureOr<std::vector<KeyRange>> rangesOfKeys(attn::AttentionOp op, Scorer &scorer, const AttentionRow &row) {
  std::vector<KeyRange> ranges;
  std::vector<double> later(row.scores.size());
  if (op.getStickBreaking())
    for (size_t key = later.size(); key-- > 1;)
      later[key - 1] = later[key] - (row.scores[key] == -INFINITY ? 0 : softplus(row.scores[key]));
  // Of an error within half an ulp of a number in [1, 2).
  double unit = tolerance::roundingDeviations * epsilonOf(scorer.scoreType) / std::sqrt(12);
  double ownUnit = unit * std::sqrt(roundingsOfScore);
  StridedRow query = scorer.queryRow(row.batch, row.head, row.position);
  int64_t kvHead = scorer.kvHead(row.head), keys = int64_t(row.scores.size());
  for (auto [key, score] : llvm::enumerate(row.scores)) {
    if (!scorer.isVisible(int64_t(key)) || std::isnan(score))
      continue;
    double error = unit * rootOfPartialSums(scorer, query.elements, scorer.key.at(row.batch, kvHead, int64_t(key)));
    if (scorer.isQuantized())
      error = std::hypot(error, tolerance::roundingDeviations *
                                    scorer.quantizedKeys(row.batch, kvHead, keys).deviation(query, int64_t(key)));
    error *= std::abs(scorer.getScale());
    double least = score, largest = score;
    for (double sign : {-1, 1}) {
      FailureOr<double> rounded = scorer.scoreOf(int64_t(key), scorer.scaledScore(int64_t(key)) + sign * error);
      if (failed(rounded))
        return failure();
      least = std::min(least, *rounded);
      largest = std::max(largest, *rounded);
    }
    if (largest == -INFINITY)
      continue;
    auto withOwn = [&](double change, double end) { return std::hypot(change, ownUnit * binade(end)); };
    if (score != -INFINITY) {
      largest = score + withOwn(largest - score, largest);
      least = score - withOwn(score - least, least);
    }
    // A row without visible keys has no weights.
    bool hasWeight = !row.weights.empty() && score != -INFINITY;
    KeyRange range{int64_t(key), hasWeight ? row.weights[key] : 0, hasWeight ? row.factors[key] : 0, {}};
    for (auto [end, rounded] : llvm::zip_equal(range.ends, std::array{least, largest})) {
      FailureOr<RoundedScore> found = op.getPointwise() ? pointwiseWithScore(scorer, range, rounded)
                                      : op.getStickBreaking()
                                          ? stickWithScore(scorer, range, later[key], score, rounded)
                                          : withScore(scorer, row, range, rounded);
      if (failed(found))
        return failure();
      end = *found;
    }
    ranges.push_back(range);
  }
  return ranges;
}

/// The change of each element of a row of the output.
static std::vector<double> changesOfOutput(attn::AttentionOp op, const Scorer &scorer, const AttentionRow &row,
                                           ArrayRef<KeyRange> ranges) {
  std::vector<double> changes(scorer.value.extent(Dim::Depth));
  for (auto [depth, change] : llvm::enumerate(changes)) {
    auto value = [&](const KeyRange &range) {
      const double *values = scorer.value.at(row.batch, scorer.kvHead(row.head), range.key);
      return values[int64_t(depth) * scorer.value.stride(Dim::Depth)];
    };
    double output = 0, largest = 0, squares = 0, before = 0;
    for (const KeyRange &range : ranges) {
      output += range.factor * value(range);
      largest = std::max(largest, std::abs(value(range)));
    }
    for (const KeyRange &range : ranges) {
      double most = 0, others = output - range.factor * value(range);
      // Keys share the stick with those before them only.
      if (op.getStickBreaking())
        others = -std::exchange(before, before + range.factor * value(range));
      for (const RoundedScore &end : range.ends) {
        // Keys whose weights are too small to be known may have all the weight.
        double moved = std::isinf(end.shift) ? std::abs(output) + largest
                                             : std::abs(end.factor * value(range) - end.shift * others);
        most = std::max(most, moved);
      }
      squares += most * most;
    }
    change = std::sqrt(squares);
  }
  return changes;
}

/// The same for each bin of tally region `number`.
static FailureOr<std::vector<double>> changesOfTally(Scorer &scorer, const AttentionRow &row, ArrayRef<KeyRange> ranges,
                                                     unsigned number, int64_t bins) {
  struct Amount {
    int64_t bin = -1;
    double weighted = 0; ///< p a(s)
  };
  auto amountOf = [&](int64_t key, double score, double weight) -> FailureOr<Amount> {
    Amount amount;
    double each;
    if (weight == 0)
      return amount;
    if (failed(scorer.tally(number, key, score, amount.bin, each)))
      return failure();
    amount.weighted = weight * each;
    return amount;
  };
  std::vector<double> sums(bins), squares(bins);
  std::vector<std::array<Amount, 3>> amounts; // exact, and at both ends
  for (const KeyRange &range : ranges) {
    FailureOr<Amount> exact = amountOf(range.key, row.scores[range.key], range.weight),
                      least = amountOf(range.key, range.ends[0].score, range.ends[0].weight),
                      largest = amountOf(range.key, range.ends[1].score, range.ends[1].weight);
    if (failed(exact) || failed(least) || failed(largest))
      return failure();
    amounts.push_back({*exact, *least, *largest});
    if (0 <= exact->bin && exact->bin < bins)
      sums[exact->bin] += exact->weighted;
  }
  for (auto [range, ofKey] : llvm::zip_equal(ranges, amounts))
    for (int64_t bin = 0; bin < bins; ++bin) {
      auto in = [&](const Amount &amount) { return amount.bin == bin ? amount.weighted : 0; };
      double most = 0, own = in(ofKey[0]);
      for (auto [end, amount] : llvm::zip_equal(range.ends, ArrayRef(ofKey).drop_front()))
        most =
            std::max(most, std::isinf(end.shift) ? INFINITY : std::abs(in(amount)-own - end.shift * (sums[bin] - own)));
      squares[bin] += most * most;
    }
  for (double &square : squares)
    square = std::sqrt(square);
  return squares;
}

/// The change of the row maximum.
static double changeOfMaximum(const AttentionRow &row, ArrayRef<KeyRange> ranges) {
  double exact = RowMax(row.scores).score, least = -INFINITY, largest = -INFINITY;
  for (const KeyRange &range : ranges) {
    least = std::max(least, range.ends[0].score);
    largest = std::max(largest, range.ends[1].score);
  }
  return ranges.empty() ? 0 : std::max(largest - exact, exact - least);
}

FailureOr<std::optional<Tensor>> saccade::reference::scoreRoundingOf(attn::AttentionOp op, Value result, Frame &frame,
                                                                     ArrayRef<Box> boxes) {
  auto tally = llvm::find(op.getTallies(), result);
  bool isTally = tally != op.getTallies().end();
  if (result != op.getOutput() && result != op.getLse() && result != op.getRowMax() && !isTally)
    return std::optional<Tensor>();
  unsigned number = tally - op.getTallies().begin();
  SmallVector<Dim> dims = op.getResultDims(result);
  int64_t start = 0;
  for (const Box &box : boxes)
    start += box.size();
  Tensor rounding(getElementTypeOrSelf(result), {start});
  start = 0;
  for (const Box &box : boxes) {
    auto visit = [&](Scorer &scorer, const AttentionRow &row) {
      FailureOr<std::vector<KeyRange>> ranges = rangesOfKeys(op, scorer, row);
      if (failed(ranges))
        return failure();
      std::vector<double> changes(1);
      if (result == op.getOutput()) {
        changes = changesOfOutput(op, scorer, row, *ranges);
      } else if (isTally) {
        int64_t bins = cast<RankedTensorType>(result.getType()).getShape().back();
        FailureOr<std::vector<double>> ofTally = changesOfTally(scorer, row, *ranges, number, bins);
        if (failed(ofTally))
          return failure();
        changes = std::move(*ofTally);
      } else if (result == op.getLse()) {
        for (const KeyRange &range : *ranges)
          changes[0] = std::hypot(changes[0], std::max(range.ends[0].logSumExp, range.ends[1].logSumExp));
      } else {
        changes[0] = changeOfMaximum(row, *ranges);
      }
      Box own = box;
      // Bins are the last dimension, which `dims` lacks.
      int64_t elementDim = isTally ? int64_t(dims.size()) : -1;
      for (auto [i, dim] : llvm::enumerate(dims)) {
        if (dim == Dim::Depth) {
          elementDim = int64_t(i);
          continue;
        }
        int64_t positions[] = {row.batch, row.head, row.tokenIndex}; // in the order of Dim
        own.offsets[i] = positions[unsigned(dim)];
        own.sizes[i] = 1;
      }
      for (int64_t i = 0; i < own.size(); ++i) {
        SmallVector<int64_t> index = positionInTensor({own}, i);
        int64_t element = elementDim < 0 ? 0 : index[elementDim];
        for (auto [position, offset] : llvm::zip_equal(index, box.offsets))
          position -= offset;
        rounding.values[start + linearIndex(index, rowMajorStrides(box.sizes))].real = changes[element];
      }
      return success();
    };
    if (failed(forEachAttentionRow(op, frame, AttentionRange::of(box, dims), visit)))
      return failure();
    start += box.size();
  }
  return std::optional<Tensor>(std::move(rounding));
}
