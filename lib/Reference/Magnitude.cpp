//===- Magnitude.cpp - Magnitudes of the terms of attention -----------------------===//
//
// The output is Σ p v with p = softmax(s). To first order, score errors δs change it by Σ p v (δs − Σ p δs), which is
// at most Σ p |v| |δs| + (Σ p |v|) (Σ p |δs|). The error of a score is relative to its size and the terms of its dot
// product; their magnitudes are used for |δs|.
//
// Errors of scores that are rounded to int8 are not small, but have a bound e for each key. A probability p then
// becomes at most p exp(e + max e) and at least p exp(−e − max e). The output changes by at most Σ |v| |f(p') − f(p)|
// with the weight region f and p' at one of the ends. Without a weight region that is at most Σ p |v| (exp(e + max e) −
// 1), and at most max |v − o|, since the output is a mean of the values of visible keys, and of 0 with a sink.
//
//===----------------------------------------------------------------------===//
#include "Magnitude.h"
#include "AttentionRows.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Reference/Tolerance.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;
using attn::Dim;

/// For every key of `row`: |s| + scale · Σ |q k| + 1.
static std::vector<double> scoreSizes(const Scorer &scorer, const AttentionRow &row) {
  std::vector<double> sizes(row.weights.size());
  const double *query = scorer.query.at(row.batch, row.head, row.position);
  int64_t queryStride = scorer.query.stride(Dim::Depth), keyStride = scorer.key.stride(Dim::Depth);
  for (auto [i, size] : llvm::enumerate(sizes)) {
    if (row.scores[i] == -INFINITY)
      continue;
    const double *key = scorer.key.at(row.batch, scorer.kvHead(row.head), i);
    for (int64_t depth = 0; depth < scorer.key.extent(Dim::Depth); ++depth)
      size += std::abs(query[depth * queryStride] * key[depth * keyStride]);
    size = size * std::abs(scorer.getScale()) + std::abs(row.scores[i]) + 1;
  }
  return sizes;
}

/// For every key of `row`, Σ σ(s) |δs| over the keys after it: with stick_breaking, the logarithm of its weight changes
/// by this and by δs of its own. `errors`: |δs| of each key; first-order changes if `isSmall`.
static std::vector<double> changesOfStick(const AttentionRow &row, ArrayRef<double> errors, bool isSmall) {
  std::vector<double> changes(errors.size());
  double sum = 0;
  for (size_t key = errors.size(); key-- > 0;) {
    changes[key] = sum;
    if (std::isinf(errors[key]))
      sum = INFINITY;
    else if (row.scores[key] != -INFINITY)
      sum += StickBreak(row.scores[key] + (isSmall ? 0 : errors[key])).taken * errors[key];
  }
  return changes;
}

/// For every key of `row`: a bound on the change of its factor, |f(p') − f(p)|, if queries and keys are rounded to
/// int8. Score and weight region are taken to be monotonic within the errors of their arguments. A key may cross a
/// threshold of the score region; the error of its score is then infinite.
static FailureOr<std::vector<double>> changesByQuantization(attn::AttentionOp op, Scorer &scorer,
                                                            const AttentionRow &row) {
  int64_t keys = int64_t(row.scores.size());
  std::vector<double> errors(keys), changes(keys);
  StridedRow query = scorer.queryRow(row.batch, row.head, row.position);
  const QuantizedKeys &rounded = scorer.quantizedKeys(row.batch, scorer.kvHead(row.head), keys);
  double largest = 0;
  for (auto [key, bound] : llvm::enumerate(errors)) {
    if (!scorer.isVisible(int64_t(key)))
      continue;
    double error = std::abs(scorer.getScale()) * rounded.errorBound(query, int64_t(key));
    for (double sign : {-1, 1}) {
      FailureOr<double> score = scorer.scoreOf(int64_t(key), scorer.scaledScore(int64_t(key)) + sign * error);
      if (failed(score))
        return failure();
      // Not NaN where both are −inf.
      if (*score != row.scores[key])
        bound = std::max(bound, std::abs(*score - row.scores[key]));
    }
    largest = std::max(largest, bound);
  }
  std::vector<double> ofLater =
      op.getStickBreaking() ? changesOfStick(row, errors, /*isSmall=*/false) : std::vector<double>(keys, largest);
  for (auto [key, change] : llvm::enumerate(changes)) {
    bool hasWeight = row.scores[key] != -INFINITY;
    if (!scorer.isVisible(int64_t(key)) || (!hasWeight && errors[key] == 0))
      continue;
    double logWeight = op.getStickBreaking() ? std::log(row.weights[key]) : row.scores[key] - row.logSumExp;
    for (double sign : {-1, 1}) {
      // A probability may be 0 where its logarithm is not. With an infinite error it is anything.
      double error = errors[key] + ofLater[key];
      double exponent = std::isinf(error) ? sign * INFINITY : logWeight + sign * error;
      double weight = std::min(1.0, std::exp(exponent));
      if (op.getPointwise())
        weight = row.scores[key] + sign * errors[key];
      FailureOr<double> factor = scorer.modifiedWeight(int64_t(key), weight);
      if (failed(factor))
        return failure();
      change = std::max(change, std::abs(*factor - (hasWeight ? row.factors[key] : 0)));
    }
  }
  return changes;
}

/// The sum of `changes` times the values of element `depth`, or if that is less the distance of the values from the
/// output.
static double changeOfOutput(attn::AttentionOp op, const Scorer &scorer, const AttentionRow &row,
                             ArrayRef<double> changes, int64_t depth) {
  double output = 0, sum = 0, farthest = 0, largest = 0;
  auto valueOf = [&](size_t key) {
    return scorer.value.at(row.batch, scorer.kvHead(row.head), int64_t(key))[depth * scorer.value.stride(Dim::Depth)];
  };
  for (auto [key, factor] : llvm::enumerate(row.factors))
    if (row.scores[key] != -INFINITY)
      output += factor * valueOf(key);
  for (auto [key, change] : llvm::enumerate(changes)) {
    if (change == 0)
      continue;
    sum += std::abs(valueOf(key)) * change;
    farthest = std::max(farthest, std::abs(valueOf(key) - output));
    largest = std::max(largest, std::abs(valueOf(key)));
  }
  if (!op.getWeight().empty())
    return sum;
  // The new weights are rounded too.
  double rounding = tolerance::outputFactor * epsilonOf(scorer.inputType) * largest;
  return std::min(sum, std::max(farthest, std::abs(output)) + rounding);
}

/// Whether `operand` is an argument of the function, or moves elements of one.
static bool isOfArgument(Value operand) {
  while (Operation *op = operand.getDefiningOp()) {
    if (!isa<tensor::TensorDialect>(op->getDialect()) || op->getNumOperands() == 0)
      return false;
    operand = op->getOperand(0);
  }
  return true;
}

FailureOr<Magnitude> saccade::reference::magnitudeOf(attn::AttentionOp op, Frame &frame, ArrayRef<Box> boxes) {
  SmallVector<Dim> dims = op.getResultDims(op.getOutput());
  unsigned depthDim = *op.getOutputDims().position(Dim::Depth);
  Magnitude magnitude;
  int64_t total = 0;
  for (const Box &box : boxes)
    total += box.size();
  Type type = getElementTypeOrSelf(op.getOutput());
  magnitude.weighted = Tensor(type, {total});
  magnitude.spread = Tensor(type, {total});
  magnitude.conditioned = Tensor(type, {total});
  bool isQuantized = op.getQkTypeAttr() != nullptr;
  if (isQuantized)
    magnitude.quantized = Tensor(type, {total});
  magnitude.inputType = getElementTypeOrSelf(op.getQuery());
  magnitude.isOfArguments = llvm::all_of(ValueRange{op.getQuery(), op.getKey(), op.getValue()}, isOfArgument);

  APFloat smallest = APFloat::getSmallestNormalized(cast<FloatType>(magnitude.inputType).getFloatSemantics());
  bool isInexact = false;
  smallest.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &isInexact);
  double smallestNormal = smallest.convertToDouble();
  int64_t start = 0;
  for (const Box &box : boxes) {
    SmallVector<int64_t> strides = rowMajorStrides(box.sizes);
    auto visit = [&](Scorer &scorer, const AttentionRow &row) {
      magnitude.keys = std::max<int64_t>(magnitude.keys, row.weights.size());
      magnitude.depth = scorer.key.extent(Dim::Depth);
      std::vector<double> sizes = scoreSizes(scorer, row);
      FailureOr<std::vector<double>> changes = std::vector<double>();
      if (isQuantized && failed(changes = changesByQuantization(op, scorer, row)))
        return failure();
      bool isStick = op.getStickBreaking();
      std::vector<double> ofLater =
          isStick ? changesOfStick(row, sizes, /*isSmall=*/true) : std::vector<double>(sizes.size());
      double meanSize = 0;
      for (auto [weight, size] : llvm::zip_equal(row.weights, sizes))
        meanSize += weight * size;
      SmallVector<int64_t> index;
      int64_t positions[] = {row.batch, row.head, row.tokenIndex, box.offsets[depthDim]}; // in the order of Dim
      for (auto [dim, offset] : llvm::zip_equal(dims, box.offsets))
        index.push_back(positions[unsigned(dim)] - offset);
      for (int64_t i = 0; i < box.sizes[depthDim]; ++i) {
        int64_t depth = box.offsets[depthDim] + i;
        double weighted = 0, squares = 0, conditioned = 0;
        for (auto [key, weight] : llvm::enumerate(row.factors)) {
          if (row.scores[key] == -INFINITY)
            continue;
          // Subnormal weights are rounded as the smallest normal one. Those of a softmax are multiples of the largest.
          double size = !op.hasSoftmax() && weight != 0 ? std::max(std::abs(weight), smallestNormal) : std::abs(weight);
          double term = size * std::abs(scorer.value.at(row.batch, scorer.kvHead(row.head),
                                                        key)[depth * scorer.value.stride(Dim::Depth)]);
          weighted += term;
          squares += term * term;
          conditioned += term * (sizes[key] + ofLater[key]);
        }
        index[depthDim] = i;
        int64_t element = start + linearIndex(index, strides);
        magnitude.weighted.values[element].real = weighted;
        magnitude.spread.values[element].real = std::sqrt(squares);
        if (isQuantized)
          magnitude.quantized.values[element].real = changeOfOutput(op, scorer, row, *changes, depth);
        magnitude.conditioned.values[element].real = conditioned + (isStick ? 0 : weighted * meanSize);
      }
      return success();
    };
    if (failed(forEachAttentionRow(op, frame, AttentionRange::of(box, dims), visit)))
      return failure();
    start += box.size();
  }
  return magnitude;
}
