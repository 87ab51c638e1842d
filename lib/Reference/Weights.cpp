//===- Weights.cpp - attn.weights, pair by pair -------------------------------===//
#include "PairEvaluator.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;
using attn::Dim;

static LogicalResult shapeOfWeights(attn::WeightsOp op, Frame &frame, unsigned, Shape &shape) {
  FailureOr<Cells *> query = frame.cells(op.getQuery()), key = frame.cells(op.getKey());
  if (failed(query) || failed(key))
    return failure();
  NamedCells ofQuery(*query, op.getQueryDims()), ofKey(*key, op.getKeyDims());
  for (Dim dim : op.getRowDims())
    shape.push_back(ofQuery.extent(dim));
  shape.push_back(ofKey.extent(Dim::Seq));
  return success();
}

namespace {

class WeightsEvaluator : public PairEvaluator {
public:
  WeightsEvaluator(attn::WeightsOp op, Frame &frame, Scorer &scorer) : PairEvaluator(op, frame, scorer), op(op) {}

private:
  LogicalResult demandOperands() override {
    FailureOr<Cells *> cells = frame.cells(op.getResult());
    if (failed(cells))
      return failure();
    weights = *cells;
    return success();
  }

  LogicalResult checkExtents() override { return success(); }

  LogicalResult addPair(int64_t, int64_t, int64_t, int64_t key, double p, SmallVector<int64_t> &row) override {
    FailureOr<double> weight = scorer.modifiedWeight(key, p);
    if (failed(weight))
      return failure();
    row.push_back(key);
    weights->at(row).real = *weight;
    row.pop_back();
    return success();
  }

  attn::WeightsOp op;
  Cells *weights = nullptr;
};

} // namespace

/// Computes all pairs.
static LogicalResult evaluateWeights(attn::WeightsOp op, Frame &frame, unsigned, const Box &) {
  FailureOr<Scorer> scorer = Scorer::create(op, frame);
  if (failed(scorer))
    return failure();
  return WeightsEvaluator(op, frame, *scorer).run();
}

void saccade::reference::addWeightsSemantics(SemanticsTable &table) {
  table.add<attn::WeightsOp>(shapeOfWeights, evaluateWeights);
}
