//===- RowSource.cpp - The rows of a tile of keys or values -------------------===//
#include "RowSource.h"
#include "Pack.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::cpu;

RowSource saccade::cpu::emitRows(Emitter &e, Value tile, int64_t capacity) {
  auto type = cast<MemRefType>(tile.getType());
  if (type.getStridesAndOffset().first.back() == 1)
    return {tile, Value()};
  auto unit =
      MemRefType::get(type.getShape(), type.getElementType(),
                      StridedLayoutAttr::get(e.b.getContext(), ShapedType::kDynamic, {ShapedType::kDynamic, 1}));
  auto memory = MemRefType::get({capacity, type.getDimSize(1)}, type.getElementType());
  Value copy = memref::AllocOp::create(e.b, e.loc, memory, e.b.getI64IntegerAttr(64));
  auto metadata = memref::ExtractStridedMetadataOp::create(e.b, e.loc, tile);
  Value isUnit = arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::eq, metadata.getStrides().back(), e.index(1));
  auto view = [&](Value base, OpFoldResult offset, Value stride) -> SmallVector<Value> {
    return {memref::ReinterpretCastOp::create(e.b, e.loc, unit, base, offset, memref::getMixedSizes(e.b, e.loc, tile),
                                              {OpFoldResult(stride), e.b.getIndexAttr(1)})};
  };
  auto inPlace = [&] {
    return view(metadata.getBaseBuffer(), OpFoldResult(metadata.getOffset()), metadata.getStrides()[0]);
  };
  auto copied = [&] {
    e.loop(e.index(0), e.size(tile, 0), 1, [&](Value r) {
      e.loop(e.index(0), e.size(tile, 1), 1, [&](Value c) { e.store(e.load(tile, {r, c}), copy, {r, c}); });
    });
    return view(copy, e.b.getIndexAttr(0), e.index(type.getDimSize(1)));
  };
  return {e.choose(isUnit, inPlace, copied)[0], Value()};
}

void saccade::cpu::emitForPagePositions(Emitter &e, LoadPagesOp op, function_ref<void(Value, Value, Value)> body) {
  auto sizeOf = [&](Dim dim) { return e.size(op.getPool(), *op.getDims().position(dim)); };
  Value begin = op.getBegin(), count = e.size(op.getTile(), 0), pageSize = sizeOf(Dim::Seq);
  Value lastPage = e.sub(sizeOf(Dim::Batch), e.index(1)), end = e.add(begin, count);
  Value none = e.isLess(count, e.index(1)), first = e.div(begin, pageSize);
  e.loop(first, e.select(none, first, e.ceilDiv(end, pageSize)), 1, [&](Value entry) {
    Value page = e.load(op.getPages(), entry);
    if (!page.getType().isIndex())
      page = arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(), page);
    page = e.max(e.index(0), e.min(page, lastPage));
    Value start = e.mul(entry, pageSize);
    e.loop(e.max(start, begin), e.min(e.add(start, pageSize), end), 1,
           [&](Value position) { body(e.sub(position, begin), page, e.sub(position, start)); });
  });
}

/// The index of an element of the pool.
static SmallVector<Value> poolIndex(LoadPagesOp op, Value page, Value position, Value element) {
  SmallVector<Value> index;
  for (Dim dim : op.getDims().getDims())
    index.push_back(dim == Dim::Batch ? page : dim == Dim::Seq ? position : element);
  return index;
}

void saccade::cpu::emitLoadPages(Emitter &e, LoadPagesOp op) {
  auto tile = cast<MemRefType>(op.getTile().getType());
  int64_t width = int64_t(e.lanes()) * e.type.getWidth() / tile.getElementTypeBitWidth();
  auto vector = VectorType::get({width}, tile.getElementType());
  Value depth = e.size(op.getTile(), 1), whole = e.roundDown(depth, width);
  auto copy = [&](Value pool) {
    emitForPagePositions(e, op, [&](Value to, Value page, Value position) {
      if (pool)
        e.loop(e.index(0), whole, width, [&](Value c) {
          Value row = vector::LoadOp::create(e.b, e.loc, vector, pool, poolIndex(op, page, position, c));
          vector::StoreOp::create(e.b, e.loc, row, op.getTile(), ValueRange{to, c});
        });
      e.loop(pool ? whole : e.index(0), depth, 1,
             [&](Value c) { e.store(e.load(op.getPool(), poolIndex(op, page, position, c)), op.getTile(), {to, c}); });
    });
  };
  if (op.getDims().getDims().back() != Dim::Depth)
    return copy(nullptr);
  emitByInnerStride(e, op.getPool(), copy, [&] { copy(nullptr); });
}

RowSource saccade::cpu::emitRowsInPages(Emitter &e, LoadPagesOp op, int64_t capacity) {
  Type index = e.b.getIndexType();
  RowSource rows;
  rows.places = memref::AllocOp::create(e.b, e.loc, MemRefType::get({capacity}, index), e.b.getI64IntegerAttr(64));
  auto tile = cast<MemRefType>(op.getTile().getType());
  // A row is the offset of its first element.
  auto layout = StridedLayoutAttr::get(e.b.getContext(), ShapedType::kDynamic, {1, 1});
  auto type = MemRefType::get(tile.getShape(), tile.getElementType(), layout);
  SmallVector<OpFoldResult> strides(2, e.b.getIndexAttr(1)), sizes = memref::getMixedSizes(e.b, e.loc, op.getTile());
  auto pool = memref::ExtractStridedMetadataOp::create(e.b, e.loc, op.getPool());
  auto stride = [&](Dim dim) -> Value { return pool.getStrides()[*op.getDims().position(dim)]; };
  auto inPages = [&]() -> SmallVector<Value> {
    emitForPagePositions(e, op, [&](Value to, Value page, Value position) {
      e.store(e.add(e.mul(page, stride(Dim::Batch)), e.mul(position, stride(Dim::Seq))), rows.places, to);
    });
    return {memref::ReinterpretCastOp::create(e.b, e.loc, type, pool.getBaseBuffer(), pool.getConstifiedMixedOffset(),
                                              sizes, strides)};
  };
  auto inTile = [&]() -> SmallVector<Value> {
    emitLoadPages(e, op);
    auto metadata = memref::ExtractStridedMetadataOp::create(e.b, e.loc, op.getTile());
    e.loop(e.index(0), e.size(op.getTile(), 0), 1,
           [&](Value to) { e.store(e.mul(to, metadata.getStrides()[0]), rows.places, to); });
    return {memref::ReinterpretCastOp::create(e.b, e.loc, type, metadata.getBaseBuffer(),
                                              metadata.getConstifiedMixedOffset(), sizes, strides)};
  };
  rows.matrix = e.choose(e.isEqual(stride(Dim::Depth), e.index(1)), inPages, inTile)[0];
  return rows;
}

LoadPagesOp saccade::cpu::findLoadOf(Value tile, Operation *user) {
  LoadPagesOp load;
  Value memory = tile;
  if (auto part = tile.getDefiningOp<memref::SubViewOp>())
    memory = part.getSource();
  if (!memory.getDefiningOp<memref::AllocOp>() || (memory != tile && !memory.hasOneUse()))
    return nullptr;
  for (Operation *other : tile.getUsers())
    if (auto op = dyn_cast<LoadPagesOp>(other); op && op.getTile() == tile && !load)
      load = op;
    else if (other != user)
      return nullptr;
  if (!load || load->getBlock() != user->getBlock() || !load->isBeforeInBlock(user))
    return nullptr;
  for (Operation *op = load->getNextNode(); op != user; op = op->getNextNode())
    if (!isMemoryEffectFree(op) && !isa<LoadPagesOp, memref::AllocOp>(op))
      return nullptr;
  return load;
}
