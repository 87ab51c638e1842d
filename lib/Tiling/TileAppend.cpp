//===- TileAppend.cpp - Tile attn.append into parallel copies of rows ---------===//
//
// Expands attn.append to a parallel loop that copies rows into the cache. Runs before bufferization, which writes the
// rows to the memory of the cache, and before TileLinalg, which leaves ops in tasks as they are.
//
//===----------------------------------------------------------------------===//
#include "TableEmitter.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Tiling/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_TILEAPPEND
#include "saccade/Tiling/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

namespace {

/// Creates the loop of one op.
class AppendTiler {
public:
  AppendTiler(OpBuilder &b, AppendOp op) : op(op), e(b, op.getLoc()) {
    newRows = size(op.getRows(), op.getRowsDims(), Dim::Seq);
    capacity = rowsOfBatch = size(op.getCache(), op.getCacheDims(), Dim::Seq);
    if (Value table = op.getTable()) {
      entries = getValueOrCreateConstantIndexOp(b, e.loc, tensor::getMixedSize(b, e.loc, table, 1));
      capacity = e.mul(rowsOfBatch, entries);
    }
  }

  /// A work item is one batch and at most `tileElements` elements of successive rows. In a ring a row may be followed
  /// by one at another place, so an item is one row. In a page pool an item is the rows of one page.
  Value tile(int64_t tileElements) {
    OpBuilder &b = e.b;
    bool isSingle = op.getRing() || op.getTable();
    int64_t step = isSingle ? 1 : std::max<int64_t>(tileElements / elementsOfRow(), 1);
    OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
    OpFoldResult items = getAsOpFoldResult(op.getTable() ? maxPages() : newRows);
    auto loop = scf::ForallOp::create(b, e.loc, {zero, zero}, {op.getBatches(b), items}, {one, b.getIndexAttr(step)},
                                      op.getCache(), attn::taskMapping(b.getContext(), 2));
    loop->setAttr(attn::tiledFromAttr, b.getStringAttr("append"));
    b.setInsertionPointToStart(loop.getBody());
    Value batch = loop.getInductionVar(0), item = loop.getInductionVar(1), cache = loop.getRegionIterArgs()[0];
    Value valid = newRows;
    if (Value count = op.getCount())
      valid = clamp(numberOf(count, batch), newRows);
    Value begin;
    if (Value from = op.getFrom()) {
      begin = clamp(numberOf(from, batch), newRows);
      valid = e.min(valid, e.sub(newRows, begin));
    }
    Rows rows = op.getTable()  ? inPage(batch, item, valid)
                : op.getRing() ? inRing(batch, item, valid)
                               : inOrder(batch, item, valid, step);
    if (begin)
      rows.source = e.add(begin, rows.source);
    Value source = slice(op.getRows(), op.getRowsDims(), batch, rows.source, rows.count);
    Value target = slice(cache, op.getCacheDims(), rows.batch, rows.target, rows.count);
    Value copied = copy(source, target);
    auto [offsets, sizes, strides] = place(cache, op.getCacheDims(), rows.batch, rows.target, rows.count);
    b.setInsertionPointToStart(loop.getTerminator().getBody());
    tensor::ParallelInsertSliceOp::create(b, e.loc, copied, cache, offsets, sizes, strides);
    return loop.getResult(0);
  }

private:
  /// Successive rows: the batch of the cache, the first one in the new rows and in the cache.
  struct Rows {
    Value batch, source, target, count;
  };

  Value size(Value tensor, DimsAttr dims, Dim dim) {
    return getValueOrCreateConstantIndexOp(e.b, e.loc, getDimSize(e.b, e.loc, tensor, dims, dim));
  }
  /// `value` within [0, limit].
  Value clamp(Value value, Value limit) { return e.min(e.max(value, e.index(0)), limit); }
  /// The number of a batch.
  Value numberOf(Value perBatch, Value batch) {
    return isa<RankedTensorType>(perBatch.getType()) ? e.get(perBatch, batch) : perBatch;
  }
  /// The elements of a row; a dynamic extent counts as 64.
  int64_t elementsOfRow() {
    int64_t elements = 1;
    for (Dim dim : {Dim::Head, Dim::Depth}) {
      int64_t extent = getStaticDimSize(op.getCache(), op.getCacheDims(), dim);
      elements *= ShapedType::isDynamic(extent) ? 64 : std::max<int64_t>(extent, 1);
    }
    return elements;
  }

  Rows inOrder(Value batch, Value first, Value valid, int64_t step) {
    Value position = clamp(numberOf(op.getAt(), batch), capacity);
    valid = e.min(valid, e.sub(capacity, position));
    Value begin = e.min(first, valid);
    return {batch, begin, e.add(position, begin), e.min(e.index(step), e.sub(valid, begin))};
  }

  /// The row of position at + first, or no row if a later one has the same place.
  Rows inRing(Value batch, Value first, Value valid) {
    OpBuilder &b = e.b;
    Value pinned = e.index(*op.getRing()), period = e.sub(capacity, pinned);
    // The limit avoids an overflow of the addition.
    Value position = e.add(clamp(numberOf(op.getAt(), batch), e.index(int64_t(1) << 62)), first);
    Value isPinned = e.isLess(position, pinned);
    Value isLast = e.compare(arith::CmpIPredicate::sge, e.add(first, period), valid);
    Value isWritten = b.createOrFold<arith::OrIOp>(e.loc, isPinned, isLast);
    isWritten = b.createOrFold<arith::AndIOp>(e.loc, isWritten, e.isLess(first, valid));
    isWritten = b.createOrFold<arith::AndIOp>(e.loc, isWritten, e.isLess(e.index(0), period));
    Value wrapped = e.add(pinned, e.rem(e.sub(position, pinned), e.max(period, e.index(1))));
    Value row = e.select(isPinned, position, wrapped);
    return {batch, first, e.select(isWritten, row, e.index(0)), e.select(isWritten, e.index(1), e.index(0))};
  }

  /// The most pages in which the new rows of a sequence can be.
  Value maxPages() {
    Value one = e.index(1);
    return e.min(entries, e.add(e.ceilDiv(e.max(e.sub(newRows, one), e.index(0)), e.max(rowsOfBatch, one)), one));
  }

  /// The new rows in the page of number `item`, counted from that of the first new row; no row if the page is beyond
  /// the table or not in the pool.
  Rows inPage(Value batch, Value item, Value valid) {
    OpBuilder &b = e.b;
    Value zero = e.index(0), one = e.index(1), pageSize = e.max(rowsOfBatch, one);
    Value begin = clamp(numberOf(op.getAt(), batch), capacity), end = e.min(e.add(begin, valid), capacity);
    Value entry = e.add(e.div(begin, pageSize), item), firstOfPage = e.mul(entry, pageSize);
    // The table has an entry, because `maxPages` is 0 otherwise.
    Value entryOrLast = e.min(entry, e.sub(entries, one));
    Value page = e.asIndex(tensor::ExtractOp::create(b, e.loc, op.getTable(), {batch, entryOrLast}));
    Value pages = size(op.getCache(), op.getCacheDims(), Dim::Batch);
    Value first = e.max(begin, firstOfPage), count = e.sub(e.min(end, e.add(firstOfPage, pageSize)), first);
    Value isWritten = b.createOrFold<arith::AndIOp>(e.loc, e.isLess(e.index(-1), page), e.isLess(page, pages));
    isWritten = b.createOrFold<arith::AndIOp>(e.loc, isWritten, e.isLess(zero, count));
    auto orZero = [&](Value value) { return e.select(isWritten, value, zero); };
    return {orZero(page), orZero(e.sub(first, begin)), orZero(e.sub(first, firstOfPage)), orZero(count)};
  }

  struct Place {
    SmallVector<OpFoldResult> offsets, sizes, strides;
  };
  Place place(Value tensor, DimsAttr dims, Value batch, Value first, Value count) {
    Place place;
    for (auto [i, dim] : llvm::enumerate(dims.getDims())) {
      OpFoldResult zero = e.b.getIndexAttr(0), one = e.b.getIndexAttr(1);
      place.offsets.push_back(dim == Dim::Batch ? OpFoldResult(batch) : dim == Dim::Seq ? OpFoldResult(first) : zero);
      place.sizes.push_back(dim == Dim::Batch ? one
                            : dim == Dim::Seq ? OpFoldResult(count)
                                              : getDimSize(e.b, e.loc, tensor, dims, dim));
      place.strides.push_back(one);
    }
    return place;
  }

  /// The dimensions of a slice: those that both operands have, without the batch.
  SmallVector<Dim> sliceDims(DimsAttr dims) {
    return llvm::filter_to_vector(dims.getDims(), [&](Dim dim) {
      return dim != Dim::Batch && op.getRowsDims().position(dim) && op.getCacheDims().position(dim);
    });
  }

  Value slice(Value tensor, DimsAttr dims, Value batch, Value first, Value count) {
    auto [offsets, sizes, strides] = place(tensor, dims, batch, first, count);
    auto whole = cast<RankedTensorType>(tensor.getType());
    SmallVector<int64_t> shape;
    for (auto [i, dim] : llvm::enumerate(dims.getDims())) {
      if (llvm::is_contained(sliceDims(dims), dim))
        shape.push_back(dim == Dim::Seq ? ShapedType::kDynamic : whole.getDimSize(i));
      else
        sizes[i] = e.b.getIndexAttr(1); // a single head, which the other operand does not name
    }
    return tensor::ExtractSliceOp::create(e.b, e.loc, RankedTensorType::get(shape, whole.getElementType()), tensor,
                                          offsets, sizes, strides);
  }

  /// Copies `source`, with the dimensions of new rows, to `target`, with those of the cache.
  Value copy(Value source, Value target) {
    OpBuilder &b = e.b;
    SmallVector<Dim> from = sliceDims(op.getRowsDims()), to = sliceDims(op.getCacheDims());
    auto find = [&](Dim dim) { return b.getAffineDimExpr(std::distance(to.begin(), llvm::find(to, dim))); };
    auto map = AffineMap::get(to.size(), 0, llvm::map_to_vector(from, find), b.getContext());
    SmallVector<utils::IteratorType> loops(to.size(), utils::IteratorType::parallel);
    auto generic = linalg::GenericOp::create(b, e.loc, target.getType(), source, target,
                                             ArrayRef<AffineMap>{map, b.getMultiDimIdentityMap(to.size())}, loops,
                                             [](OpBuilder &nested, Location loc, ValueRange elements) {
                                               linalg::YieldOp::create(nested, loc, elements[0]);
                                             });
    return generic.getResult(0);
  }

  AppendOp op;
  TableEmitter e;
  /// The positions of a sequence, the rows of a batch of the cache, and the pages of a sequence (null without a table).
  Value newRows, capacity, rowsOfBatch, entries;
};

/// Whether `cache` is an argument that the function must not write to.
bool isReadOnly(Value cache) {
  auto argument = dyn_cast<BlockArgument>(cache);
  auto function = argument ? dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp()) : FunctionOpInterface();
  return function && !function.getArgAttr(argument.getArgNumber(), updatedByAttr);
}

/// Copies a cache as a structured op, which becomes parallel and writes directly to a result. Bufferization would add a
/// serial copy to a temporary.
Value copyCache(OpBuilder &b, Location loc, Value cache) {
  Type element = getElementTypeOrSelf(cache);
  Value empty = tensor::EmptyOp::create(b, loc, tensor::getMixedSizes(b, loc, cache), element);
  return linalg::CopyOp::create(b, loc, cache, empty).getResult(0);
}

struct TileAppend : saccade::impl::TileAppendBase<TileAppend> {
  using TileAppendBase::TileAppendBase;

  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    getOperation().walk([&](AppendOp op) {
      rewriter.setInsertionPoint(op);
      if (isReadOnly(op.getCache()))
        op.getCacheMutable().assign(copyCache(rewriter, op.getLoc(), op.getCache()));
      Value tiled = AppendTiler(rewriter, op).tile(tileElements);
      rewriter.replaceOp(op, tiled);
    });
  }
};

} // namespace
