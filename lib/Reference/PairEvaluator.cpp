//===- PairEvaluator.cpp - Pairs of a query and a key of attention ------------===//
#include "PairEvaluator.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;
using attn::Dim;

LogicalResult PairEvaluator::run() {
  if (failed(demand({op.getQuery(), lse, lseLow})) || failed(demandOperands()) || failed(checkExtents()) ||
      (lse && failed(checkRows("log-sum-exp", *frame.cells(lse)))))
    return failure();
  if (lseLow && failed(checkRows("low part of the log-sum-exp", *frame.cells(lseLow))))
    return failure();
  int64_t batches = scorer.query.batches(), heads = scorer.query.extent(Dim::Head);
  for (int64_t i = 0; i < batches; ++i) {
    int64_t batch = frame.term(i, batches), rows = scorer.query.length(batch);
    FailureOr<int64_t> keys = scorer.enterBatch(batch);
    // Pages beyond the length may be missing.
    if (failed(keys) || failed(demandKeys(batch, *keys)))
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

/// Plain evaluation adds logarithms of sigma and 1 - sigma.
void PairEvaluator::roundSticks() {
  double later = 0;
  for (size_t key = scores.size(); key-- > 0;) {
    if (scores[key] == -INFINITY)
      continue;
    StickBreak part(scores[key]);
    weights[key] = rounded(std::exp(rounded(rounded(std::log(part.taken)) + later)));
    later = rounded(later + rounded(std::log(part.rest)));
  }
}

LogicalResult PairEvaluator::demand(ArrayRef<Value> operands) {
  for (Value operand : operands)
    if (operand && failed(frame.demandAll(operand)))
      return failure();
  return success();
}

LogicalResult PairEvaluator::demandKeys(int64_t batch, int64_t keys) {
  for (auto [value, cells] : {std::pair(op.getKey(), &scorer.key), std::pair(op.getValue(), &scorer.value)})
    if (failed(frame.demand(value, cells->box(batch, 0, cells->extent(Dim::Head), 0, keys))))
      return failure();
  return success();
}

LogicalResult PairEvaluator::checkRows(StringRef role, Cells *rows) {
  for (auto [dim, extent] : llvm::zip_equal(rowDims, rows->getShape()))
    if (extent != scorer.query.extent(dim))
      return op->emitOpError() << role << " has extent " << extent << " in dimension '" << stringifyDim(dim)
                               << "', expected " << scorer.query.extent(dim);
  return success();
}

LogicalResult PairEvaluator::addRow(int64_t batch, int64_t head, int64_t position, int64_t keys) {
  SmallVector<int64_t> row;
  for (Dim dim : rowDims)
    row.push_back(dim == Dim::Batch ? batch : dim == Dim::Head ? head : scorer.query.start(batch) + position);
  double rowLse = lse ? (*frame.cells(lse))->at(row).real : 0;
  double rowLow = lseLow ? (*frame.cells(lseLow))->at(row).real : 0;
  // Neither a visible key nor a sink.
  if (rowLse == -INFINITY || scorer.at.query + position >= scorer.queryLength)
    return success();
  if (failed(scorer.scores(batch, head, position, keys, scores)))
    return failure();
  bool isStick = op.getStickBreaking();
  if (isStick) {
    breakStick(scores, weights);
    if (frame.isRounded())
      roundSticks();
    if (failed(beginRow(batch, head, position, weights)))
      return failure();
  }
  for (int64_t i = 0; i < keys; ++i) {
    int64_t key = frame.term(i, keys);
    double p = lse       ? rounded(std::exp(rounded(rounded(scores[key] - rowLse) - rowLow)))
               : isStick ? rounded(weights[key])
                         : scores[key];
    if (scores[key] != -INFINITY && failed(addPair(batch, head, position, key, p, row)))
      return failure();
  }
  return success();
}

void PairEvaluator::addScaled(const NamedCells &to, int64_t head, int64_t position, double factor,
                              const NamedCells &from, int64_t fromHead, int64_t fromPosition, int64_t batch) const {
  double *sums = to.at(batch, head, position);
  const double *terms = from.at(batch, fromHead, fromPosition);
  for (int64_t i = 0; i < from.extent(Dim::Depth); ++i)
    add(sums[i * to.stride(Dim::Depth)], factor * terms[i * from.stride(Dim::Depth)]);
}
