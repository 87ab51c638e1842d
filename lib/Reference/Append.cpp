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
    batches = cache.extent(Dim::Batch);
    if (op.getTable()) {
      FailureOr<Cells *> pages = frame.demandAll(op.getTable());
      if (failed(pages))
        return failure();
      table = *pages;
      batches = table->getShape()[0];
    }
    for (auto [dim, expected] : {std::pair(Dim::Batch, batches), std::pair(Dim::Head, cache.extent(Dim::Head)),
                                 std::pair(Dim::Depth, cache.extent(Dim::Depth))})
      if (rows.extent(dim) != expected && !(dim == Dim::Batch && op.getFrom()))
        return op.emitOpError() << "new rows have extent " << rows.extent(dim) << " in dimension '" << stringifyDim(dim)
                                << "', but " << (dim == Dim::Batch && table ? "page table" : "cache") << " has "
                                << expected;
    return success();
  }

  /// Calls `write(batch of the cache, row of the cache, new row)` for the new rows of a sequence, in order. Positions
  /// and counts outside of the cache are clamped. Rows in pages that are not in the pool are left out.
  LogicalResult forEachRow(int64_t sequence, function_ref<void(int64_t, int64_t, int64_t)> write) {
    int64_t pinned = op.getRing().value_or(0), rowsOfBatch = cache.extent(Dim::Seq);
    int64_t capacity = table ? table->getShape()[1] * rowsOfBatch : rowsOfBatch;
    FailureOr<int64_t> at = numberOf("at", op.getAt(), sequence);
    FailureOr<int64_t> count = rows.extent(Dim::Seq), from = 0;
    if (op.getCount())
      count = numberOf("count", op.getCount(), sequence);
    if (op.getFrom())
      from = numberOf("from", op.getFrom(), sequence);
    if (failed(at) || failed(count) || failed(from))
      return failure();
    if (op.getRing() && pinned >= capacity)
      return success();
    int64_t first = std::clamp<int64_t>(*from, 0, rows.extent(Dim::Seq)), begin = std::max<int64_t>(*at, 0);
    int64_t end = std::clamp<int64_t>(*count, 0, rows.extent(Dim::Seq) - first);
    for (int64_t i = 0; i < end; ++i) {
      int64_t row = begin + i;
      if (op.getRing() && row >= pinned)
        row = pinned + (row - pinned) % (capacity - pinned);
      if (row >= capacity)
        continue;
      int64_t batch = table ? table->at({sequence, row / rowsOfBatch}).integer : sequence;
      if (batch >= 0 && batch < cache.extent(Dim::Batch))
        write(batch, row % rowsOfBatch, first + i);
    }
    return success();
  }

  NamedCells rows, cache;
  Cells *table = nullptr; ///< of pages, or null
  int64_t batches = 0;    ///< the number of sequences

private:
  FailureOr<int64_t> numberOf(StringRef clause, Value value, int64_t sequence) {
    if (!isa<RankedTensorType>(value.getType()))
      return frame.index(value);
    FailureOr<Cells *> numbers = frame.demandAll(value);
    if (failed(numbers))
      return failure();
    if ((*numbers)->size() != batches)
      return op.emitOpError() << clause << " has batch size " << (*numbers)->size() << ", but "
                              << (table ? "page table" : "cache") << " has " << batches;
    return (*numbers)->data()[sequence].integer;
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
  unsigned rowDim = *op.getCacheDims().position(Dim::Seq);
  for (int64_t sequence = 0; sequence < appender.batches; ++sequence) {
    auto write = [&](int64_t batch, int64_t row, int64_t newRow) {
      Box part = appender.cache.box(batch, 0, appender.cache.extent(Dim::Head), row, 1);
      std::optional<Box> overlap = intersect(part, box);
      if (!overlap)
        return;
      forEachPoint(*overlap, [&](ArrayRef<int64_t> index) {
        SmallVector<int64_t> source;
        for (Dim dim : op.getRowsDims().getDims()) {
          std::optional<unsigned> place = op.getCacheDims().position(dim);
          source.push_back(dim == Dim::Batch ? sequence : !place ? 0 : *place == rowDim ? newRow : index[*place]);
        }
        (*to)->at(index) = appender.rows.getCells()->at(source);
      });
    };
    if (failed(appender.forEachRow(sequence, write)))
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
