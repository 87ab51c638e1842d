//===- Gradient.cpp - attn.gradient as loops over pairs -----------------------===//
//
// The contribution of a query and a key to each gradient.
//
//===----------------------------------------------------------------------===//
#include "Kernels.h"
#include "Magnitude.h"
#include "PairEvaluator.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;
using attn::Dim;

static LogicalResult shapeOfGradient(attn::GradientOp op, Frame &frame, unsigned result, Shape &shape) {
  SmallVector<Value> sources = {op.getQuery(), op.getKey(), op.getValue()};
  for (int64_t capture : op.getDifferentiatedCaptures())
    sources.push_back(op.getCaptures()[capture]);
  if (!isa<RankedTensorType>(sources[result].getType()))
    return success();
  FailureOr<Cells *> cells = frame.cells(sources[result]);
  if (failed(cells))
    return failure();
  llvm::append_range(shape, (*cells)->getShape());
  return success();
}

namespace {

class GradientEvaluator : public PairEvaluator {
public:
  GradientEvaluator(attn::GradientOp op, Frame &frame, Scorer &scorer) : PairEvaluator(op, frame, scorer), op(op) {}

protected:
  /// The storage to which terms of `result` are added.
  virtual FailureOr<Cells *> destination(Value result) { return frame.cells(result); }

  LogicalResult demandOperands() override {
    if (failed(demand({op.getOutputGradient(), op.getDelta()})))
      return failure();
    if (Value rows = op.getDelta())
      delta = *frame.cells(rows);
    outputGradient = {*frame.cells(op.getOutputGradient()), op.getOutputDims()};
    outputGradient.starts = scorer.query.starts;
    for (auto [result, dims, starts] : {std::tuple(op.getQueryGradient(), op.getQueryDims(), &scorer.query.starts),
                                        std::tuple(op.getKeyGradient(), op.getKeyDims(), &scorer.key.starts),
                                        std::tuple(op.getValueGradient(), op.getValueDims(), &scorer.value.starts)}) {
      FailureOr<Cells *> cells = destination(result);
      if (failed(cells))
        return failure();
      gradients.emplace_back(*cells, dims).starts = *starts;
    }
    for (Value result : op.getCaptureGradients()) {
      FailureOr<Cells *> cells = destination(result);
      if (failed(cells))
        return failure();
      captureGradients.push_back(*cells);
    }
    return success();
  }

  LogicalResult checkExtents() override {
    for (Dim dim : {Dim::Batch, Dim::Head, Dim::Seq, Dim::Depth}) {
      const NamedCells &expected = dim == Dim::Depth ? scorer.value : scorer.query;
      if (outputGradient.extent(dim) != expected.extent(dim))
        return op.emitOpError() << "output gradient has extent " << outputGradient.extent(dim) << " in dimension '"
                                << stringifyDim(dim) << "', expected " << expected.extent(dim);
    }
    return delta ? checkRows("delta", delta) : success();
  }

  /// With stick_breaking the score of a key changes its own weight and those of the keys before it. With the products
  /// g = weight · (output gradient · value), the gradient of a score is g (1 − σ) − σ Σ g of the keys before it.
  LogicalResult beginRow(int64_t batch, int64_t head, int64_t position, ArrayRef<double> weights) override {
    ofScores.assign(weights.size(), 0);
    sizesOfScores.assign(weights.size(), 0);
    const double *gradient = outputGradient.at(batch, head, position);
    double sum = 0, size = 0;
    for (auto [key, weight] : llvm::enumerate(weights)) {
      if (scores[key] == -INFINITY)
        continue;
      FailureOr<double> factor = scorer.modifiedWeight(int64_t(key), weight);
      if (failed(factor))
        return failure();
      double product = 0, magnitude = 0;
      const double *value = scorer.value.at(batch, scorer.kvHead(head), int64_t(key));
      for (int64_t i = 0; i < scorer.value.extent(Dim::Depth); ++i) {
        double term = gradient[i * outputGradient.stride(Dim::Depth)] * value[i * scorer.value.stride(Dim::Depth)];
        product = rounded(product + rounded(term));
        magnitude += std::abs(*factor * term);
      }
      StickBreak part(scores[key]);
      product = rounded(*factor * product);
      ofScores[key] = rounded(rounded(product * rounded(part.rest)) - rounded(rounded(part.taken) * sum));
      sizesOfScores[key] = magnitude * part.rest + part.taken * size;
      sum = rounded(sum + product), size += magnitude;
    }
    return success();
  }

  LogicalResult addPair(int64_t batch, int64_t head, int64_t position, int64_t key, double p,
                        SmallVector<int64_t> &row) override {
    int64_t kvHead = scorer.kvHead(head);
    FailureOr<double> factor = scorer.modifiedWeight(key, p);
    double dp = rounded(dot<double>(scorer.value.extent(Dim::Depth), outputGradient.at(batch, head, position),
                                    outputGradient.stride(Dim::Depth), scorer.value.at(batch, kvHead, key),
                                    scorer.value.stride(Dim::Depth)));
    FailureOr<double> ds = scoreGradient(key, p, dp, deltaOf(row, key));
    if (failed(factor) || failed(ds))
      return failure();
    // Plain evaluation multiplies matrices of the input type.
    double scaled = frame.rounded(scorer.inputType, rounded(*ds * scorer.getScale()));
    addScaled(gradients[0], head, position, scaled, scorer.key, kvHead, key, batch);
    addScaled(gradients[1], kvHead, key, scaled, scorer.query, head, position, batch);
    addScaled(gradients[2], kvHead, key, frame.rounded(scorer.inputType, *factor), outputGradient, head, position,
              batch);
    return success();
  }

  /// Delta of a row, 0 with a normalizer. With stick_breaking, the gradient of the score after the score region.
  double deltaOf(ArrayRef<int64_t> row, int64_t key) {
    return op.getStickBreaking() ? ofScores[key] : delta ? delta->at(row).real : 0;
  }

  /// The gradient of a score; adds those of captures.
  FailureOr<double> scoreGradient(int64_t key, double p, double dp, double rowDelta) {
    if (op.getGradient().empty() && op.getStickBreaking())
      return rounded(rowDelta);
    if (op.getGradient().empty())
      return rounded(p * rounded(dp - rowDelta));
    FailureOr<Program *> program = scorer.runDerivative(key, {p, scorer.scaledScore(key), dp, rowDelta});
    if (failed(program))
      return failure();
    SmallVector<int64_t> differentiated = op.getDifferentiatedCaptures();
    unsigned next = 1;
    for (int64_t capture : op.getReads()) {
      Cells *to = captureGradients[llvm::find(differentiated, capture) - differentiated.begin()];
      SmallVector<int64_t> index;
      for (auto [dim, extent] : llvm::enumerate(to->getShape())) {
        index.push_back((*program)->yielded(next++).integer);
        if (index.back() < 0 || index.back() >= extent)
          return op.emitOpError() << "adds to index " << index.back() << " of dimension " << dim << " of capture "
                                  << capture << ", which has extent " << extent;
      }
      double &sum = to->at(index).real;
      sum = rounded(sum + (*program)->yielded(next++).real);
    }
    return (*program)->yielded(0).real;
  }

  attn::GradientOp op;
  Cells *delta = nullptr;
  NamedCells outputGradient;
  SmallVector<NamedCells, 3> gradients; ///< of query, key and value
  SmallVector<Cells *> captureGradients;
  /// With stick_breaking: the gradients of the scores of a row after the score region, and the magnitudes of their
  /// terms.
  std::vector<double> ofScores, sizesOfScores;
};

/// Adds, for each pair, how far the gradient of its score changes if the gradient of its weight, Σ dO · v, changes by
/// the magnitude of its terms and of delta.
class GradientTerms : public GradientEvaluator {
public:
  using GradientEvaluator::GradientEvaluator;
  Cells &terms(Value result) { return *storage.find(result)->second; }

private:
  FailureOr<Cells *> destination(Value result) override {
    FailureOr<Cells *> computed = frame.demandAll(result);
    if (failed(computed))
      return failure();
    auto cells = Cells::create((*computed)->getElementType(), (*computed)->getShape());
    if (failed(cells))
      return failure();
    return (storage[result] = *cells).get();
  }

  LogicalResult addPair(int64_t batch, int64_t head, int64_t position, int64_t key, double p,
                        SmallVector<int64_t> &row) override {
    int64_t kvHead = scorer.kvHead(head);
    double dp = 0, rowDelta = deltaOf(row, key), magnitude = std::abs(rowDelta);
    const double *gradient = outputGradient.at(batch, head, position), *value = scorer.value.at(batch, kvHead, key);
    for (int64_t i = 0; i < scorer.value.extent(Dim::Depth); ++i) {
      double term = gradient[i * outputGradient.stride(Dim::Depth)] * value[i * scorer.value.stride(Dim::Depth)];
      dp += term;
      magnitude += std::abs(term);
    }
    FailureOr<double> ds = scoreGradient(key, p, dp, rowDelta),
                      changed = scoreGradient(key, p, dp + magnitude,
                                              op.getStickBreaking() ? rowDelta + sizesOfScores[key] : rowDelta);
    if (failed(ds) || failed(changed))
      return failure();
    double change = std::abs((*changed - *ds) * scorer.getScale());
    addMagnitudes(gradients[0], head, position, change, scorer.key, kvHead, key, batch);
    addMagnitudes(gradients[1], kvHead, key, change, scorer.query, head, position, batch);
    return success();
  }

  static void addMagnitudes(const NamedCells &to, int64_t head, int64_t position, double factor, const NamedCells &from,
                            int64_t fromHead, int64_t fromPosition, int64_t batch) {
    double *sums = to.at(batch, head, position);
    const double *terms = from.at(batch, fromHead, fromPosition);
    for (int64_t i = 0; i < from.extent(Dim::Depth); ++i)
      sums[i * to.stride(Dim::Depth)] += factor * std::abs(terms[i * from.stride(Dim::Depth)]);
  }

  llvm::DenseMap<Value, std::shared_ptr<Cells>> storage;
};

} // namespace

FailureOr<Tensor> saccade::reference::gradientTermsOf(attn::GradientOp op, Value result, Frame &frame) {
  FailureOr<Scorer> scorer = Scorer::create(op, frame);
  if (failed(scorer))
    return failure();
  GradientTerms evaluator(op, frame, *scorer);
  if (failed(evaluator.run()))
    return failure();
  Cells &cells = evaluator.terms(result);
  Tensor tensor(cells.getElementType(), cells.getShape());
  std::copy_n(cells.data(), tensor.size(), tensor.values.begin());
  return tensor;
}

/// Computes all results: a row contributes to each of them.
static LogicalResult evaluateGradient(attn::GradientOp op, Frame &frame, unsigned, const Box &) {
  FailureOr<Scorer> scorer = Scorer::create(op, frame);
  if (failed(scorer))
    return failure();
  return GradientEvaluator(op, frame, *scorer).run();
}

void saccade::reference::addGradientSemantics(SemanticsTable &table) {
  table.add<attn::GradientOp>(shapeOfGradient, evaluateGradient);
}
