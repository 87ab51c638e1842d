//===- Paged.cpp - attn.paged and attn.load_pages ------------------------------===//
#include "Frame.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;
using attn::Dim;

static LogicalResult shapeOfPaged(attn::PagedOp op, Frame &frame, unsigned, Shape &shape) {
  FailureOr<Cells *> pool = frame.cells(op.getPool()), table = frame.cells(op.getTable());
  if (failed(pool) || failed(table))
    return failure();
  for (auto [dim, extent] : llvm::zip_equal(op.getDims().getDims(), (*pool)->getShape()))
    shape.push_back(dim == Dim::Batch ? (*table)->getShape()[0]
                    : dim == Dim::Seq ? (*table)->getShape()[1] * extent
                                      : extent);
  return success();
}

/// Copies one position after the other, so that only the entries of the page table for `box` are read.
static LogicalResult evaluatePaged(attn::PagedOp op, Frame &frame, unsigned, const Box &box) {
  FailureOr<Cells *> pool = frame.cells(op.getPool()), to = frame.cells(op.getResult());
  if (failed(pool) || failed(to))
    return failure();
  unsigned batch = *op.getDims().position(Dim::Batch), seq = *op.getDims().position(Dim::Seq);
  int64_t pages = (*pool)->getShape()[batch], pageSize = (*pool)->getShape()[seq];
  for (int64_t b = box.offsets[batch]; b < box.offsets[batch] + box.sizes[batch]; ++b)
    for (int64_t position = box.offsets[seq]; position < box.offsets[seq] + box.sizes[seq]; ++position) {
      SmallVector<int64_t> entry = {b, position / pageSize};
      FailureOr<Cells *> table = frame.demand(op.getTable(), Box{entry, {1, 1}});
      if (failed(table))
        return failure();
      int64_t page = (*table)->at(entry).integer;
      if (page < 0 || page >= pages)
        return op.emitOpError() << "has page " << page << " for position " << position << " of sequence " << b
                                << ", but the pool has " << pages << " pages";
      Box source = box, target = box;
      source.sizes[batch] = source.sizes[seq] = target.sizes[batch] = target.sizes[seq] = 1;
      source.offsets[batch] = page, source.offsets[seq] = position % pageSize;
      target.offsets[batch] = b, target.offsets[seq] = position;
      if (failed(frame.demand(op.getPool(), source)))
        return failure();
      forEachPoint(target, [&](ArrayRef<int64_t> index) {
        SmallVector<int64_t> from(index);
        from[batch] = page, from[seq] = position % pageSize;
        (*to)->at(index) = (*pool)->at(from);
      });
    }
  return success();
}

static LogicalResult shapeOfTile(attn::LoadPagesOp op, Frame &frame, unsigned, Shape &shape) {
  FailureOr<Cells *> tile = frame.cells(op.getTile());
  if (succeeded(tile))
    shape.assign((*tile)->getShape().begin(), (*tile)->getShape().end());
  return tile;
}

static LogicalResult evaluateLoadPages(attn::LoadPagesOp op, Frame &frame, unsigned, const Box &box) {
  FailureOr<Cells *> pool = frame.cells(op.getPool()), pages = frame.demandAll(op.getPages());
  FailureOr<Cells *> to = frame.cells(op->getResult(0));
  FailureOr<int64_t> begin = frame.index(op.getBegin());
  if (failed(pool) || failed(pages) || failed(to) || failed(begin))
    return failure();
  unsigned batch = *op.getDims().position(Dim::Batch), seq = *op.getDims().position(Dim::Seq),
           depth = *op.getDims().position(Dim::Depth);
  int64_t count = (*pool)->getShape()[batch], pageSize = (*pool)->getShape()[seq];
  LogicalResult status = success();
  forEachPoint(box, [&](ArrayRef<int64_t> index) {
    SmallVector<int64_t> from(3), entry = {(*begin + index[0]) / pageSize};
    if (entry[0] < 0 || entry[0] >= (*pages)->getShape()[0]) {
      status = op.emitOpError() << "reads position " << *begin + index[0] << " beyond the list of pages";
      return;
    }
    from[batch] = std::clamp<int64_t>((*pages)->at(entry).integer, 0, count - 1);
    from[seq] = (*begin + index[0]) % pageSize, from[depth] = index[1];
    if (failed(frame.demand(op.getPool(), Box{from, {1, 1, 1}})))
      status = failure();
    else
      (*to)->at(index) = (*pool)->at(from);
  });
  return status;
}

void saccade::reference::addPagedSemantics(SemanticsTable &table) {
  table.add<attn::PagedOp>(shapeOfPaged, evaluatePaged);
  table.add<attn::LoadPagesOp>(shapeOfTile, evaluateLoadPages);
}
