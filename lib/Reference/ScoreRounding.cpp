//===- ScoreRounding.cpp - What rounding of scores changes --------------------------===//
//
// Scores are f32, or f64. A partial sum P of a dot product, in the order of the sum, is rounded with an error within
// half an ulp of P. It is taken to be uniform, whatever the others are: sub-Gaussian with the variance ulp² / 12 (Arbel
// et al., "On strict sub-Gaussianity, optimal proxy variance and symmetry for bounded random variables", 2020). So a
// sum Σ c δ of such errors is within 6 deviations √(Σ c² ulp² / 12) with the probability 1 − 2 e^(−18) (for errors in
// general: Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019). To first order the output
// o = Σ p v changes by Σ p (v − o) δs. So the bound is √(Σ p² (v − o)² e²), with e = 6 √(Σ ulp(P)² / 12) of a score.
// Where one key has all the weight, its value is the output, so the bound is 0. The log-sum-exp changes by Σ p δs, the
// row maximum by the δs of its key, and a tally T = Σ p a(s) over the keys of its bin by Σ p (a − T) δs + Σ p δa.
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

/// For every key of `row`: e; 0 if its weight is 0. A score region may have a threshold, and lower the score within
/// rounding of it to −inf. If `isNormalized`, e is limited to what this changes in the output and the log-sum-exp: the
/// output becomes (o − p v) / (1 − p), so it changes by p / (1 − p) · (o − v), as by the first-order term with e = 1 /
/// (1 − p), and the log-sum-exp changes by log(1 − p), which is less than p / (1 − p).
static FailureOr<std::vector<double>> boundsOfScores(Scorer &scorer, const AttentionRow &row, bool isNormalized) {
  std::vector<double> bounds(row.weights.size());
  // Of an error within half an ulp of a number in [1, 2).
  double unit = tolerance::roundingDeviations * epsilonOf(scorer.scoreType) / std::sqrt(12);
  const double *query = scorer.query.at(row.batch, row.head, row.position);
  for (auto [i, bound] : llvm::enumerate(bounds)) {
    if (row.weights[i] == 0 || row.scores[i] == -INFINITY)
      continue;
    const double *key = scorer.key.at(row.batch, scorer.kvHead(row.head), int64_t(i));
    double error = unit * std::abs(scorer.getScale()) * rootOfPartialSums(scorer, query, key);
    double rise = 0, fall = 0;
    for (double sign : {-1, 1}) {
      FailureOr<double> score = scorer.scoreOf(int64_t(i), scorer.scaledScore(int64_t(i)) + sign * error);
      if (failed(score))
        return failure();
      rise = std::max(rise, *score - row.scores[i]);
      fall = std::max(fall, row.scores[i] - *score);
    }
    if (isNormalized)
      fall = std::min(fall, 1 / (1 - row.weights[i]));
    bound = std::hypot(std::max(rise, fall), unit * std::sqrt(roundingsOfScore) * binade(row.scores[i]));
  }
  return bounds;
}

/// √(Σ p² (v − o)² e²) for each element of a row of the output.
static std::vector<double> changesOfOutput(const Scorer &scorer, const AttentionRow &row, ArrayRef<double> bounds) {
  std::vector<double> changes(scorer.value.extent(Dim::Depth));
  for (auto [depth, change] : llvm::enumerate(changes)) {
    auto term = [&](size_t key) {
      const double *value = scorer.value.at(row.batch, scorer.kvHead(row.head), int64_t(key));
      return row.factors[key] * value[int64_t(depth) * scorer.value.stride(Dim::Depth)];
    };
    double output = 0, squares = 0;
    for (size_t key = 0; key < bounds.size(); ++key)
      if (row.scores[key] != -INFINITY)
        output += term(key);
    // A weight region is taken to be linear.
    for (auto [key, bound] : llvm::enumerate(bounds))
      if (bound != 0)
        if (double difference = term(key) - row.weights[key] * output; difference != 0) // the bound may be infinite
          squares += std::pow(bound * difference, 2);
    change = std::sqrt(squares);
  }
  return changes;
}

/// The same for each bin of tally region `number`. Keys of other bins change a bin by p T e.
static FailureOr<std::vector<double>> changesOfTally(Scorer &scorer, const AttentionRow &row, ArrayRef<double> bounds,
                                                     unsigned number, int64_t bins) {
  struct Term {
    int64_t bin;
    double amount, change;
  };
  std::vector<Term> terms(bounds.size());
  std::vector<double> sums(bins), squares(bins);
  for (auto [key, bound] : llvm::enumerate(bounds)) {
    if (row.weights[key] == 0 || row.scores[key] == -INFINITY)
      continue;
    auto &[bin, amount, change] = terms[key];
    double amounts[2];
    for (auto [sign, changed] : llvm::zip_equal(std::array{-1, 1}, amounts))
      if (failed(scorer.tally(number, int64_t(key), row.scores[key] + sign * bound, bin, changed)))
        return failure();
    if (failed(scorer.tally(number, int64_t(key), row.scores[key], bin, amount)))
      return failure();
    change = std::max(std::abs(amounts[0] - amount), std::abs(amounts[1] - amount));
    if (0 <= bin && bin < bins)
      sums[bin] += row.weights[key] * amount;
  }
  for (auto [key, bound] : llvm::enumerate(bounds))
    for (int64_t bin = 0; bin < bins; ++bin) {
      bool isOwn = terms[key].bin == bin;
      double change = bound * std::abs((isOwn ? terms[key].amount : 0) - sums[bin]) + (isOwn ? terms[key].change : 0);
      squares[bin] += std::pow(row.weights[key] * change, 2);
    }
  for (double &square : squares)
    square = std::sqrt(square);
  return squares;
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
      bool isNormalized = result == op.getOutput() || result == op.getLse();
      FailureOr<std::vector<double>> bounds = boundsOfScores(scorer, row, isNormalized);
      if (failed(bounds))
        return failure();
      std::vector<double> changes(1);
      if (result == op.getOutput()) {
        changes = changesOfOutput(scorer, row, *bounds);
      } else if (isTally) {
        int64_t bins = cast<RankedTensorType>(result.getType()).getShape().back();
        FailureOr<std::vector<double>> ofTally = changesOfTally(scorer, row, *bounds, number, bins);
        if (failed(ofTally))
          return failure();
        changes = std::move(*ofTally);
      } else if (result == op.getLse()) {
        for (auto [bound, weight] : llvm::zip_equal(*bounds, row.weights))
          changes[0] = std::hypot(changes[0], bound * weight);
      } else if (int64_t key = RowMax(row.scores).key; key >= 0) {
        changes[0] = (*bounds)[key];
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
