//===- Magnitude.cpp - Magnitudes of the terms of attention -----------------------===//
//
// The output is Σ p v with p = softmax(s). To first order, score errors δs change it by Σ p v (δs − Σ p δs), which is
// at most Σ p |v| |δs| + (Σ p |v|) (Σ p |δs|). The error of a score is relative to its size and the terms of its dot
// product; their magnitudes are used for |δs|.
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
  magnitude.inputType = getElementTypeOrSelf(op.getQuery());
  magnitude.isOfArguments = llvm::all_of(ValueRange{op.getQuery(), op.getKey(), op.getValue()}, isOfArgument);

  int64_t start = 0;
  for (const Box &box : boxes) {
    SmallVector<int64_t> strides = rowMajorStrides(box.sizes);
    auto visit = [&](Scorer &scorer, const AttentionRow &row) {
      magnitude.keys = std::max<int64_t>(magnitude.keys, row.weights.size());
      magnitude.depth = scorer.key.extent(Dim::Depth);
      std::vector<double> sizes = scoreSizes(scorer, row);
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
          double term = std::abs(weight) * std::abs(scorer.value.at(row.batch, scorer.kvHead(row.head),
                                                                    key)[depth * scorer.value.stride(Dim::Depth)]);
          weighted += term;
          squares += term * term;
          conditioned += term * sizes[key];
        }
        index[depthDim] = i;
        int64_t element = start + linearIndex(index, strides);
        magnitude.weighted.values[element].real = weighted;
        magnitude.spread.values[element].real = std::sqrt(squares);
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
