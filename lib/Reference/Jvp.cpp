//===- Jvp.cpp - attn.jvp as loops over pairs ---------------------------------===//
//
// The contribution of a key to the tangents of a row.
//
//===----------------------------------------------------------------------===//
#include "PairEvaluator.h"

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

class JvpEvaluator : public PairEvaluator {
public:
  JvpEvaluator(attn::JvpOp op, Frame &frame, Scorer &scorer) : PairEvaluator(op, frame, scorer), op(op) {}

private:
  LogicalResult demandOperands() override {
    if (failed(demand({op.getQueryTangent(), op.getKeyTangent(), op.getValueTangent()})))
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

  LogicalResult checkExtents() override {
    for (auto [role, tangent, of] : {std::tuple("query", &query, &scorer.query), std::tuple("key", &key, &scorer.key),
                                     std::tuple("value", &value, &scorer.value)})
      for (Dim dim : {Dim::Batch, Dim::Head, Dim::Seq, Dim::Depth})
        if (*tangent && (*tangent)->extent(dim) != of->extent(dim))
          return op.emitOpError() << "tangent of " << role << " has extent " << (*tangent)->extent(dim)
                                  << " in dimension '" << stringifyDim(dim) << "', expected " << of->extent(dim);
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

  LogicalResult addPair(int64_t batch, int64_t head, int64_t position, int64_t key, double p,
                        SmallVector<int64_t> &row) override {
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
    int64_t kvHead = scorer.kvHead(head);
    addScaled(output, head, position, frame.rounded(scorer.inputType, dw), scorer.value, kvHead, key, batch);
    if (value)
      addScaled(output, head, position, frame.rounded(scorer.inputType, *weight), *value, kvHead, key, batch);
    return success();
  }

  attn::JvpOp op;
  std::optional<NamedCells> query, key, value; ///< tangents
  double scaleTangent = 0;
  SmallVector<Cells *> results;
  NamedCells output;
};

} // namespace

/// Computes all results: a pair contributes to each of them.
static LogicalResult evaluateJvp(attn::JvpOp op, Frame &frame, unsigned, const Box &) {
  FailureOr<Scorer> scorer = Scorer::create(op, frame);
  if (failed(scorer))
    return failure();
  return JvpEvaluator(op, frame, *scorer).run();
}

void saccade::reference::addJvpSemantics(SemanticsTable &table) { table.add<attn::JvpOp>(shapeOfJvp, evaluateJvp); }
