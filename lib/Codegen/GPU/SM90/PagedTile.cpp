//===- PagedTile.cpp - Tiles of keys in pages ---------------------------------===//
//
// All entries of a tile are loaded at once, one by each lane, because a load takes several hundred cycles. One lane
// issues the copies, whose operands are uniform registers of the warp.
//
//===----------------------------------------------------------------------===//
#include "PagedTile.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

/// The largest power of two that divides x (i32).
static Value lowestBit(Emitter &e, Value x) { return e.andi(x, e.sub(e.i32(0), x)); }

PagedTile::PagedTile(Emitter &e, const MappedOperand &operand, int64_t tileRows, Value rows, Value first)
    : tileRows(tileRows) {
  LoadPagesOp op = operand.pages;
  auto sizeOf = [&](Dim dim) { return e.size(op.getPool(), *op.getDims().position(dim)); };
  Value pageSize = e.toI32(sizeOf(Dim::Seq));
  boxRows = e.min(lowestBit(e, pageSize), lowestBit(e, e.i32(tileRows)));
  Value inTile = e.mul(e.rem(e.thread(), 32), boxRows), row = e.add(first, inTile);
  Value isBox = e.isLess(inTile, e.i32(tileRows));
  Value hasRows = e.andi(e.isLess(row, rows), e.isLess(e.i32(0), e.add(row, boxRows)));
  Value position = e.add(e.toI32(op.getBegin()), row);
  rowInPage = e.rem(position, pageSize);
  page = e.choose(
      e.andi(isBox, hasRows),
      [&]() -> SmallVector<Value> {
        Value entry = e.asIndex(e.load(op.getPages(), {e.toIndex(e.div(position, pageSize))}));
        // A page that is not in the pool is replaced by the nearest one.
        return {e.toI32(e.max(e.index(0), e.min(entry, e.sub(sizeOf(Dim::Batch), e.index(1)))))};
      },
      [&]() -> SmallVector<Value> { return {e.i32(-1)}; })[0];
}

void PagedTile::forEach(Emitter &e, function_ref<void(Value, Value, Value)> body) const {
  // The shuffle hides a constant from ptxas, which would unroll the loop. The producer has no registers for copies of
  // it.
  Value boxes = e.shuffleFrom(e.div(e.i32(tileRows), boxRows), e.i32(0));
  e.loop(e.i32(0), boxes, 1,
         [&](Value box) { body(e.mul(box, boxRows), e.shuffleFrom(page, box), e.shuffleFrom(rowInPage, box)); });
}
