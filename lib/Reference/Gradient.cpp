//===- Gradient.cpp - attn.gradient as loops over pairs -----------------------===//
//
// The definition, pair by pair: probabilities from the log-sum-exp, then the contribution of a query and a key to each
// gradient.
//
//===----------------------------------------------------------------------===//
#include "Kernels.h"
#include "Scoring.h"

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

class Evaluator {
public:
  Evaluator(attn::GradientOp op, Frame &frame, Scorer &scorer) : op(op), frame(frame), scorer(scorer) {}

  LogicalResult run() {
    if (failed(demandOperands()) || failed(checkExtents()))
      return failure();
    int64_t batches = scorer.query.batches(), heads = scorer.query.extent(Dim::Head);
    for (int64_t i = 0; i < batches; ++i) {
      int64_t batch = frame.term(i, batches), rows = scorer.query.length(batch);
      FailureOr<int64_t> keys = scorer.enterBatch(batch);
      if (failed(keys))
        return failure();
      for (int64_t head = 0; head < heads; ++head)
        for (int64_t row = 0; row < rows; ++row)
          if (failed(addRow(batch, head, frame.term(row, rows), *keys)))
            return failure();
    }
    for (Value result : op->getResults()) {
      Cells *cells = *frame.cells(result);
      for (int64_t i = 0; i < cells->size(); ++i)
        cells->data()[i].real = frame.rounded(cells->getElementType(), cells->data()[i].real);
      cells->setKnown(Box::whole(cells->getShape()));
    }
    return success();
  }

private:
  LogicalResult demandOperands() {
    for (Value operand :
         {op.getQuery(), op.getKey(), op.getValue(), op.getOutputGradient(), op.getLse(), op.getDelta()})
      if (failed(frame.demandAll(operand)))
        return failure();
    lse = *frame.cells(op.getLse()), delta = *frame.cells(op.getDelta());
    outputGradient = {*frame.cells(op.getOutputGradient()), op.getOutputDims()};
    outputGradient.starts = scorer.query.starts;
    for (auto [result, dims, starts] : {std::tuple(op.getQueryGradient(), op.getQueryDims(), &scorer.query.starts),
                                        std::tuple(op.getKeyGradient(), op.getKeyDims(), &scorer.key.starts),
                                        std::tuple(op.getValueGradient(), op.getValueDims(), &scorer.value.starts)}) {
      FailureOr<Cells *> cells = frame.cells(result);
      if (failed(cells))
        return failure();
      gradients.emplace_back(*cells, dims).starts = *starts;
    }
    for (Value result : op.getCaptureGradients()) {
      FailureOr<Cells *> cells = frame.cells(result);
      if (failed(cells))
        return failure();
      captureGradients.push_back(*cells);
    }
    return success();
  }

  /// Checks at run time what the verifier checks for static sizes.
  LogicalResult checkExtents() {
    for (Dim dim : {Dim::Batch, Dim::Head, Dim::Seq, Dim::Depth}) {
      const NamedCells &expected = dim == Dim::Depth ? scorer.value : scorer.query;
      if (outputGradient.extent(dim) != expected.extent(dim))
        return op.emitOpError() << "output gradient has extent " << outputGradient.extent(dim) << " in dimension '"
                                << stringifyDim(dim) << "', expected " << expected.extent(dim);
    }
    for (auto [role, rows] : {std::pair("log-sum-exp", lse), std::pair("delta", delta)})
      for (auto [dim, extent] : llvm::zip_equal(op.getRowDims(), rows->getShape()))
        if (extent != scorer.query.extent(dim))
          return op.emitOpError() << role << " has extent " << extent << " in dimension '" << stringifyDim(dim)
                                  << "', expected " << scorer.query.extent(dim);
    return success();
  }

  double atRow(Cells *cells, int64_t batch, int64_t head, int64_t position) {
    SmallVector<int64_t> index;
    for (Dim dim : op.getRowDims())
      index.push_back(dim == Dim::Batch ? batch : dim == Dim::Head ? head : scorer.query.start(batch) + position);
    return cells->at(index).real;
  }

  /// to += factor · from, along depth.
  void add(NamedCells &to, int64_t head, int64_t position, double factor, const NamedCells &from, int64_t fromHead,
           int64_t fromPosition, int64_t batch) {
    double *sums = to.at(batch, head, position);
    const double *terms = from.at(batch, fromHead, fromPosition);
    for (int64_t i = 0; i < from.extent(Dim::Depth); ++i) {
      double &sum = sums[i * to.stride(Dim::Depth)];
      double term = frame.rounded(scorer.scoreType, factor * terms[i * from.stride(Dim::Depth)]);
      sum = frame.rounded(scorer.scoreType, sum + term);
    }
  }

  LogicalResult addRow(int64_t batch, int64_t head, int64_t position, int64_t keys) {
    double rowLse = atRow(lse, batch, head, position), rowDelta = atRow(delta, batch, head, position);
    // Neither a visible key nor a sink.
    if (rowLse == -INFINITY || scorer.at[2] + position >= scorer.queryLength)
      return success();
    if (failed(scorer.scores(batch, head, position, keys, scores)))
      return failure();
    for (int64_t i = 0; i < keys; ++i) {
      int64_t key = frame.term(i, keys);
      if (scores[key] != -INFINITY && failed(addPair(batch, head, position, key, rowLse, rowDelta)))
        return failure();
    }
    return success();
  }

  LogicalResult addPair(int64_t batch, int64_t head, int64_t position, int64_t key, double rowLse, double rowDelta) {
    Type type = scorer.scoreType;
    int64_t kvHead = scorer.kvHead(head);
    double p = frame.rounded(type, std::exp(frame.rounded(type, scores[key] - rowLse)));
    FailureOr<double> factor = scorer.modifiedWeight(key, p);
    double dp =
        frame.rounded(type, dot<double>(scorer.value.extent(Dim::Depth), outputGradient.at(batch, head, position),
                                        outputGradient.stride(Dim::Depth), scorer.value.at(batch, kvHead, key),
                                        scorer.value.stride(Dim::Depth)));
    FailureOr<double> ds = scoreGradient(key, p, dp, rowDelta);
    if (failed(factor) || failed(ds))
      return failure();
    // Plain evaluation multiplies matrices of the input type.
    double scaled = frame.rounded(scorer.inputType, frame.rounded(type, *ds * scorer.getScale()));
    add(gradients[0], head, position, scaled, scorer.key, kvHead, key, batch);
    add(gradients[1], kvHead, key, scaled, scorer.query, head, position, batch);
    add(gradients[2], kvHead, key, frame.rounded(scorer.inputType, *factor), outputGradient, head, position, batch);
    return success();
  }

  /// The gradient of a score; adds those of captures.
  FailureOr<double> scoreGradient(int64_t key, double p, double dp, double rowDelta) {
    Type type = scorer.scoreType;
    if (op.getGradient().empty())
      return frame.rounded(type, p * frame.rounded(type, dp - rowDelta));
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
      sum = frame.rounded(type, sum + (*program)->yielded(next++).real);
    }
    return (*program)->yielded(0).real;
  }

  attn::GradientOp op;
  Frame &frame;
  Scorer &scorer;
  Cells *lse = nullptr, *delta = nullptr;
  NamedCells outputGradient;
  SmallVector<NamedCells, 3> gradients; ///< of query, key and value
  SmallVector<Cells *> captureGradients;
  std::vector<double> scores; ///< of the row
};

} // namespace

/// Computes all results: a row contributes to each of them.
static LogicalResult evaluateGradient(attn::GradientOp op, Frame &frame, unsigned, const Box &) {
  FailureOr<Scorer> scorer = Scorer::create(op, frame);
  if (failed(scorer))
    return failure();
  return Evaluator(op, frame, *scorer).run();
}

void saccade::reference::addGradientSemantics(SemanticsTable &table) {
  table.add<attn::GradientOp>(shapeOfGradient, evaluateGradient);
}
