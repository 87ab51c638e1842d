//===- Append.cpp - attn.append -----------------------------------------------===//
#include "Scoring.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;
using attn::Dim;

namespace {

/// An op whose operands are being read.
class Appender {
public:
  Appender(attn::AppendOp op, Frame &frame) : op(op), frame(frame) {}

  LogicalResult fetch() {
    FailureOr<Cells *> newRows = frame.demandAll(op.getRows()), cells = frame.cells(op.getCache());
    if (failed(newRows) || failed(cells))
      return failure();
    rows = {*newRows, op.getRowsDims()};
    cache = {*cells, op.getCacheDims()};
    for (Dim dim : {Dim::Batch, Dim::Head, Dim::Depth})
      if (rows.extent(dim) != cache.extent(dim))
        return op.emitOpError() << "new rows have extent " << rows.extent(dim) << " in dimension '" << stringifyDim(dim)
                                << "', but cache has " << cache.extent(dim);
    return success();
  }

  /// Calls `write(row of the cache, new row)` for the new rows of a batch, in order. Positions and counts outside of
  /// the cache are clamped.
  LogicalResult forEachRow(int64_t batch, function_ref<void(int64_t, int64_t)> write) {
    int64_t pinned = op.getRing().value_or(0), capacity = cache.extent(Dim::Seq);
    FailureOr<int64_t> at = numberOf("at", op.getAt(), batch);
    FailureOr<int64_t> count = rows.extent(Dim::Seq);
    if (op.getCount())
      count = numberOf("count", op.getCount(), batch);
    if (failed(at) || failed(count))
      return failure();
    if (op.getRing() && pinned >= capacity)
      return success();
    int64_t end = std::clamp<int64_t>(*count, 0, rows.extent(Dim::Seq)), begin = std::max<int64_t>(*at, 0);
    for (int64_t i = 0; i < end; ++i) {
      int64_t row = begin + i;
      if (op.getRing() && row >= pinned)
        row = pinned + (row - pinned) % (capacity - pinned);
      if (row < capacity)
        write(row, i);
    }
    return success();
  }

  NamedCells rows, cache;

private:
  FailureOr<int64_t> numberOf(StringRef clause, Value value, int64_t batch) {
    if (!isa<RankedTensorType>(value.getType()))
      return frame.index(value);
    FailureOr<Cells *> numbers = frame.demandAll(value);
    if (failed(numbers))
      return failure();
    if ((*numbers)->size() != cache.extent(Dim::Batch))
      return op.emitOpError() << clause << " has batch size " << (*numbers)->size() << ", but cache has "
                              << cache.extent(Dim::Batch);
    return (*numbers)->data()[batch].integer;
  }

  attn::AppendOp op;
  Frame &frame;
};

LogicalResult evaluateAppend(attn::AppendOp op, Frame &frame, unsigned, const Box &box) {
  Appender appender(op, frame);
  FailureOr<Cells *> to = frame.cells(op.getResult());
  if (failed(to) || failed(appender.fetch()) || failed(frame.demand(op.getCache(), box)))
    return failure();
  Cells *from = appender.cache.getCells();
  forEachPoint(box, [&](ArrayRef<int64_t> index) { (*to)->at(index) = from->at(index); });
  std::optional<unsigned> batchDim = op.getCacheDims().position(Dim::Batch);
  unsigned rowDim = *op.getCacheDims().position(Dim::Seq);
  int64_t begin = batchDim ? box.offsets[*batchDim] : 0, end = batchDim ? begin + box.sizes[*batchDim] : 1;
  for (int64_t batch = begin; batch < end; ++batch) {
    auto write = [&](int64_t row, int64_t newRow) {
      Box part = appender.cache.box(batch, 0, appender.cache.extent(Dim::Head), row, 1);
      std::optional<Box> overlap = intersect(part, box);
      if (!overlap)
        return;
      forEachPoint(*overlap, [&](ArrayRef<int64_t> index) {
        SmallVector<int64_t> source;
        for (Dim dim : op.getRowsDims().getDims()) {
          std::optional<unsigned> place = op.getCacheDims().position(dim);
          source.push_back(!place ? 0 : *place == rowDim ? newRow : index[*place]);
        }
        (*to)->at(index) = appender.rows.getCells()->at(source);
      });
    };
    if (failed(appender.forEachRow(batch, write)))
      return failure();
  }
  return success();
}

LogicalResult shapeOfAppend(attn::AppendOp op, Frame &frame, unsigned, Shape &shape) {
  FailureOr<Cells *> cache = frame.cells(op.getCache());
  if (failed(cache))
    return failure();
  shape.assign((*cache)->getShape().begin(), (*cache)->getShape().end());
  return success();
}

} // namespace

void saccade::reference::addAppendSemantics(SemanticsTable &table) {
  table.add<attn::AppendOp>(shapeOfAppend, evaluateAppend);
}
