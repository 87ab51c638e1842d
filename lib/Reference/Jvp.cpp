//===- Jvp.cpp - attn.jvp as loops over pairs ---------------------------------===//
//
// The definition, pair by pair: probabilities from the log-sum-exp, then the contribution of a key to the tangents of a
// row.
//
//===----------------------------------------------------------------------===//
#include "Scoring.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;
using attn::Dim;

static LogicalResult shapeOfJvp(attn::JvpOp op, Frame &frame, unsigned result, Shape &shape) {
  FailureOr<Cells *> query = frame.cells(op.getQuery()), value = frame.cells(op.getValue());
  if (failed(query) || failed(value))
    return failure();
  NamedCells ofQuery(*query, op.getQueryDims()), ofValue(*value, op.getValueDims());
  SmallVector<Dim> dims = result == 0 ? SmallVector<Dim>(op.getOutputDims().getDims()) : op.getRowDims();
  for (Dim dim : dims)
    shape.push_back(dim == Dim::Depth ? ofValue.extent(dim) : ofQuery.extent(dim));
  if (result >= 2)
    shape.push_back(cast<RankedTensorType>(op.getResult(result).getType()).getShape().back());
  return success();
}

namespace {

class Evaluator {
public:
  Evaluator(attn::JvpOp op, Frame &frame, Scorer &scorer) : op(op), frame(frame), scorer(scorer) {}

  LogicalResult run() {
    if (failed(demandOperands()) || failed(checkExtents()))
      return failure();
    int64_t batches = scorer.query.batches(), heads = scorer.query.extent(Dim::Head);
    for (int64_t batch = 0; batch < batches; ++batch) {
      FailureOr<int64_t> keys = scorer.enterBatch(batch);
      if (failed(keys))
        return failure();
      for (int64_t head = 0; head < heads; ++head)
        for (int64_t row = 0, rows = scorer.query.length(batch); row < rows; ++row)
          if (failed(addRow(batch, head, row, *keys)))
            return failure();
    }
    for (Value result : op->getResults()) {
      Cells *cells = *frame.cells(result);
      cells->setKnown(Box::whole(cells->getShape()));
    }
    return success();
  }

private:
  LogicalResult demandOperands() {
    for (Value operand : {op.getQuery(), op.getKey(), op.getValue(), op.getQueryTangent(), op.getKeyTangent(),
                          op.getValueTangent(), op.getLse()})
      if (operand && failed(frame.demandAll(operand)))
        return failure();
    for (auto [tangent, cells, dims, of] : {std::tuple(op.getQueryTangent(), &query, op.getQueryDims(), &scorer.query),
                                            std::tuple(op.getKeyTangent(), &key, op.getKeyDims(), &scorer.key),
                                            std::tuple(op.getValueTangent(), &value, op.getValueDims(), &scorer.value)})
      if (tangent) {
        cells->emplace(*frame.cells(tangent), dims);
        (*cells)->starts = of->starts;
      }
    if (Value tangent = op.getScaleTangent()) {
      FailureOr<Scalar> number = frame.scalar(tangent);
      if (failed(number))
        return failure();
      scaleTangent = frame.rounded(scorer.scoreType, number->real);
    }
    lse = *frame.cells(op.getLse());
    for (Value result : op->getResults()) {
      FailureOr<Cells *> cells = frame.cells(result);
      if (failed(cells))
        return failure();
      results.push_back(*cells);
    }
    output = {results[0], op.getOutputDims()};
    output.starts = scorer.query.starts;
    return success();
  }

  /// Checks at run time what the verifier checks for static sizes.
  LogicalResult checkExtents() {
    for (auto [role, tangent, of] : {std::tuple("query", &query, &scorer.query), std::tuple("key", &key, &scorer.key),
                                     std::tuple("value", &value, &scorer.value)})
      for (Dim dim : {Dim::Batch, Dim::Head, Dim::Seq, Dim::Depth})
        if (*tangent && (*tangent)->extent(dim) != of->extent(dim))
          return op.emitOpError() << "tangent of " << role << " has extent " << (*tangent)->extent(dim)
                                  << " in dimension '" << stringifyDim(dim) << "', expected " << of->extent(dim);
    for (auto [dim, extent] : llvm::zip_equal(op.getRowDims(), lse->getShape()))
      if (extent != scorer.query.extent(dim))
        return op.emitOpError() << "log-sum-exp has extent " << extent << " in dimension '" << stringifyDim(dim)
                                << "', expected " << scorer.query.extent(dim);
    return success();
  }

  double rounded(double number) { return frame.rounded(scorer.scoreType, number); }

  LogicalResult addRow(int64_t batch, int64_t head, int64_t position, int64_t keys) {
    SmallVector<int64_t> row;
    for (Dim dim : op.getRowDims())
      row.push_back(dim == Dim::Batch ? batch : dim == Dim::Head ? head : scorer.query.start(batch) + position);
    double rowLse = lse->at(row).real;
    // Neither a visible key nor a sink.
    if (rowLse == -INFINITY || scorer.at[2] + position >= scorer.queryLength)
      return success();
    if (failed(scorer.scores(batch, head, position, keys, scores)))
      return failure();
    for (int64_t i = 0; i < keys; ++i) {
      int64_t key = frame.term(i, keys);
      if (scores[key] != -INFINITY && failed(addPair(batch, head, position, key, rowLse, row)))
        return failure();
    }
    return success();
  }

  /// The tangent of the scaled score.
  double scoreTangent(int64_t batch, int64_t head, int64_t position, int64_t key) {
    int64_t kvHead = scorer.kvHead(head);
    const double *q = scorer.query.at(batch, head, position), *k = scorer.key.at(batch, kvHead, key);
    double sum = 0, ofScale = 0;
    if (query)
      sum = scorer.dotProduct(*query, query->at(batch, head, position), scorer.key, k);
    if (this->key)
      sum = rounded(sum + scorer.dotProduct(scorer.query, q, *this->key, this->key->at(batch, kvHead, key)));
    if (op.getScaleTangent())
      ofScale = rounded(scorer.dotProduct(scorer.query, q, scorer.key, k) * scaleTangent);
    return rounded(rounded(sum * scorer.getScale()) + ofScale);
  }

  LogicalResult addPair(int64_t batch, int64_t head, int64_t position, int64_t key, double rowLse,
                        SmallVector<int64_t> &row) {
    double p = rounded(std::exp(rounded(scores[key] - rowLse)));
    FailureOr<double> weight = scorer.modifiedWeight(key, p);
    double ds = scoreTangent(batch, head, position, key), dp = rounded(p * ds), dw = dp;
    if (failed(weight))
      return failure();
    if (!op.getTangent().empty()) {
      FailureOr<Program *> program = scorer.runDerivative(key, {p, scorer.scaledScore(key), ds});
      if (failed(program))
        return failure();
      dp = (*program)->yielded(0).real, dw = (*program)->yielded(1).real;
      for (auto [i, cells] : llvm::enumerate(ArrayRef(results).drop_front(2))) {
        int64_t bin = (*program)->yielded(2 + 2 * i).integer;
        if (bin < 0 || bin >= cells->getShape().back())
          continue;
        row.push_back(bin);
        add(cells->at(row).real, (*program)->yielded(3 + 2 * i).real);
        row.pop_back();
      }
    }
    add(results[1]->at(row).real, dp);
    // Plain evaluation multiplies matrices of the input type.
    double *sums = output.at(batch, head, position);
    addScaled(sums, frame.rounded(scorer.inputType, dw), scorer.value, batch, scorer.kvHead(head), key);
    if (value)
      addScaled(sums, frame.rounded(scorer.inputType, *weight), *value, batch, scorer.kvHead(head), key);
    return success();
  }

  void add(double &sum, double term) { sum = rounded(sum + rounded(term)); }
  /// sums += factor · from, along depth.
  void addScaled(double *sums, double factor, const NamedCells &from, int64_t batch, int64_t head, int64_t key) {
    const double *terms = from.at(batch, head, key);
    for (int64_t i = 0; i < from.extent(Dim::Depth); ++i)
      add(sums[i * output.stride(Dim::Depth)], factor * terms[i * from.stride(Dim::Depth)]);
  }

  attn::JvpOp op;
  Frame &frame;
  Scorer &scorer;
  std::optional<NamedCells> query, key, value; ///< tangents
  double scaleTangent = 0;
  Cells *lse = nullptr;
  SmallVector<Cells *> results;
  NamedCells output;
  std::vector<double> scores; ///< of the row
};

} // namespace

/// Computes all results: a pair contributes to each of them.
static LogicalResult evaluateJvp(attn::JvpOp op, Frame &frame, unsigned, const Box &) {
  FailureOr<Scorer> scorer = Scorer::create(op, frame);
  if (failed(scorer))
    return failure();
  return Evaluator(op, frame, *scorer).run();
}

void saccade::reference::addJvpSemantics(SemanticsTable &table) { table.add<attn::JvpOp>(shapeOfJvp, evaluateJvp); }
