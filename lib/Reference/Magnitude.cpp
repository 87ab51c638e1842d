//===- Magnitude.cpp - Magnitudes of the terms of attention -----------------------===//
//
// The output is Σ p v with p = softmax(s). To first order, score errors δs change it by Σ p v (δs − Σ p δs), which is
// at most Σ p |v| |δs| + (Σ p |v|) (Σ p |δs|). The error of a score is relative to its size and the terms of its dot
// product; their magnitudes are used for |δs|.
//
// Errors of scores that are rounded to int8 are not small, but have a bound e for each key. A probability p then becomes
// at most p exp(e + max e) and at least p exp(−e − max e). The output changes by at most Σ |v| |f(p') − f(p)| with the
// weight region f and p' at one of the ends. Without a weight region that is at most Σ p |v| (exp(e + max e) − 1).
//
//===----------------------------------------------------------------------===//
#include "Magnitude.h"
#include "AttentionRows.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

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

/// For every key of `row`: a bound on the change of its factor, |f(p') − f(p)|, if queries and keys are rounded to int8.
/// Score and weight region are taken to be monotonic within the errors of their arguments.
static FailureOr<std::vector<double>> changesByQuantization(Scorer &scorer, const AttentionRow &row) {
  std::vector<double> errors(row.weights.size()), changes(row.weights.size());
  StridedRow query = scorer.queryRow(row.batch, row.head, row.position);
  const QuantizedKeys &keys = scorer.quantizedKeys(row.batch, scorer.kvHead(row.head), int64_t(row.weights.size()));
  double largest = 0;
  for (auto [i, bound] : llvm::enumerate(errors)) {
    if (row.scores[i] == -INFINITY)
      continue;
    double error = std::abs(scorer.getScale()) * keys.errorBound(query, int64_t(i));
    for (double sign : {-1, 1}) {
      FailureOr<double> score = scorer.scoreOf(int64_t(i), scorer.scaledScore(int64_t(i)) + sign * error);
      if (failed(score))
        return failure();
      bound = std::max(bound, std::abs(*score - row.scores[i]));
    }
    largest = std::max(largest, bound);
  }
  for (auto [i, change] : llvm::enumerate(changes)) {
    if (row.scores[i] == -INFINITY)
      continue;
    for (double sign : {-1, 1}) {
      // A probability may be 0 where its logarithm is not. With an infinite error it is anything.
      double exponent = row.scores[i] - row.logSumExp + sign * (errors[i] + largest);
      FailureOr<double> factor = scorer.modifiedWeight(int64_t(i), std::min(1.0, std::exp(exponent)));
      if (failed(factor))
        return failure();
      change = std::max(change, std::abs(*factor - row.factors[i]));
    }
  }
  return changes;
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

  int64_t start = 0;
  for (const Box &box : boxes) {
    SmallVector<int64_t> strides = rowMajorStrides(box.sizes);
    auto visit = [&](Scorer &scorer, const AttentionRow &row) {
      magnitude.keys = std::max<int64_t>(magnitude.keys, row.weights.size());
      magnitude.depth = scorer.key.extent(Dim::Depth);
      std::vector<double> sizes = scoreSizes(scorer, row);
      FailureOr<std::vector<double>> changes = std::vector<double>();
      if (isQuantized && failed(changes = changesByQuantization(scorer, row)))
        return failure();
      double meanSize = 0;
      for (auto [weight, size] : llvm::zip_equal(row.weights, sizes))
        meanSize += weight * size;
      SmallVector<int64_t> index;
      int64_t positions[] = {row.batch, row.head, row.tokenIndex, box.offsets[depthDim]}; // in the order of Dim
      for (auto [dim, offset] : llvm::zip_equal(dims, box.offsets))
        index.push_back(positions[unsigned(dim)] - offset);
      for (int64_t i = 0; i < box.sizes[depthDim]; ++i) {
        int64_t depth = box.offsets[depthDim] + i;
        double weighted = 0, squares = 0, conditioned = 0, quantized = 0;
        for (auto [key, weight] : llvm::enumerate(row.factors)) {
          if (row.scores[key] == -INFINITY)
            continue;
          double value = std::abs(scorer.value.at(row.batch, scorer.kvHead(row.head),
                                                  key)[depth * scorer.value.stride(Dim::Depth)]);
          double term = std::abs(weight) * value;
          weighted += term;
          squares += term * term;
          conditioned += term * sizes[key];
          quantized += isQuantized ? value * (*changes)[key] : 0;
        }
        index[depthDim] = i;
        int64_t element = start + linearIndex(index, strides);
        magnitude.weighted.values[element].real = weighted;
        magnitude.spread.values[element].real = std::sqrt(squares);
        if (isQuantized)
          magnitude.quantized.values[element].real = quantized;
        magnitude.conditioned.values[element].real = conditioned + weighted * meanSize;
      }
      return success();
    };
    if (failed(forEachAttentionRow(op, frame, AttentionRange::of(box, dims), visit)))
      return failure();
    start += box.size();
  }
  return magnitude;
}
