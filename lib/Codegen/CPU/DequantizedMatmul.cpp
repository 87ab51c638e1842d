//===- DequantizedMatmul.cpp - Matmuls with quantized weights -----------------===//
//
// Weights are dequantized while the RHS is packed. DequantizedDot.cpp and Int8Dot.cpp multiply few rows in registers.
//
//===----------------------------------------------------------------------===//
#include "DequantizedMatmul.h"
#include "BlockedMatmul.h"
#include "Pack.h"
#include "Prefetch.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::cpu;

/// Writes the units [begin, end) of row `row` to a row of `tile`.
static void emitDequantizedRow(Emitter &e, QuantizedRows &weights, Value row, Value begin, Value end, Value tile,
                               Value to) {
  weights.prepare(row, 0, begin, end);
  e.loop(begin, end, 1, [&](Value unit) {
    Value column = e.mul(e.sub(unit, begin), weights.unit());
    for (auto [v, element] : llvm::enumerate(weights.load(row, 0, unit)))
      e.storeVector(emitFromCompute(e, element, getElementTypeOrSelf(tile)), tile, {to, e.add(column, v * e.lanes())});
  });
}

DequantizedPacking::DequantizedPacking(Emitter &e, QuantizedRows &weights, const Product &product, Type element)
    : e(e), weights(weights), product(product) {
  auto type = MemRefType::get({2 * int64_t(e.lanes()), part + padding}, element);
  tile = memref::AllocOp::create(e.b, e.loc, type, e.b.getI64IntegerAttr(64));
}

void DequantizedPacking::pack(Value column, Value columns, Value begin, Value depth, Value panels) {
  int64_t width = 2 * e.lanes();
  Value zero = e.index(0);
  e.loop(zero, columns, width, [&](Value first) {
    Value count = e.min(e.sub(columns, first), e.index(width));
    e.loop(zero, depth, part, [&](Value k) {
      Value length = e.min(e.sub(depth, k), e.index(part));
      Value from = e.div(e.add(begin, k), weights.unit()), end = e.add(from, e.ceilDiv(length, weights.unit()));
      e.loop(zero, count, 1, [&](Value i) {
        Value row = e.add(e.add(column, first), i);
        // The next block along K of this row. Tasks read short pieces of rows, which the processor does not foresee.
        Value blocks = e.div(e.add(begin, k), part);
        weights.prefetch(row, e.mul(e.add(blocks, MatmulBlock().depth / part), weights.bytesOf(part)),
                         weights.bytesOf(part) + cacheLine, /*intoL1=*/false);
        emitDequantizedRow(e, weights, row, from, end, tile, i);
      });
      SmallVector<OpFoldResult> ones(3, e.b.getIndexAttr(1));
      Value units = emitUnits(e, product.traits, length), firstUnit = emitUnits(e, product.traits, k);
      SmallVector<OpFoldResult> offsets = getAsOpFoldResult(ValueRange{e.div(first, width), firstUnit, zero});
      SmallVector<OpFoldResult> sizes = {ones[0], getAsOpFoldResult(units),
                                         memref::getMixedSize(e.b, e.loc, panels, 2)};
      Value part = memref::SubViewOp::create(e.b, e.loc, panels, offsets, sizes, ones);
      product.packPanels(e, emitBlock(e, tile, {zero, count, zero, length}), count, part);
    });
  });
}

void cpu::emitLoadDequantized(Emitter &e, attn::LoadDequantizedOp op) {
  auto type = cast<MemRefType>(op.getTile().getType());
  int64_t part = DequantizedPacking::part;
  QuantizedRows weights(e, attn::QuantizedWeights::of(op), 1,
                        type.isDynamicDim(0) ? MatmulBlock().columns : type.getDimSize(0));
  Value row = e.alloc({1, part}), zero = e.index(0), one = e.index(1), columns = e.size(op.getTile(), 1);
  e.loop(zero, e.size(op.getTile(), 0), 1, [&](Value r) {
    e.loop(zero, columns, part, [&](Value k) {
      Value length = e.min(e.sub(columns, k), e.index(part));
      Value begin = e.div(k, weights.unit()), end = e.add(begin, e.ceilDiv(length, weights.unit()));
      emitDequantizedRow(e, weights, r, begin, end, row, zero);
      emitUnpackRows(e, emitBlock(e, row, {zero, one, zero, length}), emitBlock(e, op.getTile(), {r, one, k, length}));
    });
  });
}
