//===- DequantizedMatmul.cpp - Matmuls with quantized weights -----------------===//
//
// Few rows are multiplied in registers: lanes are neighbours along K, as they are in blocks, so that weights need no
// transposition and no memory. For many rows, weights are dequantized while the RHS is packed.
//
//===----------------------------------------------------------------------===//
#include "DequantizedMatmul.h"
#include "BlockedMatmul.h"
#include "Pack.h"
#include "Prefetch.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::cpu;

//===----------------------------------------------------------------------===//
// In registers
//===----------------------------------------------------------------------===//

namespace {

class DotKernel {
public:
  DotKernel(Emitter &e, QuantizedRows &weights, Value lhs, Value result, int64_t maxColumns);
  void run();

private:
  void emitRows(Value firstColumn, unsigned columns);
  void emitBlock(Value row, unsigned rows, Value column, unsigned slot, unsigned columns, Value firstUnit);
  void addRow(Value row, unsigned slot, Value column, Value unit, Value x, MutableArrayRef<Value> sums);
  unsigned columnsFor(unsigned rows, unsigned most);
  int64_t vectors() { return std::max<int64_t>(weights.unit() / e.lanes(), 1); }

  Emitter &e;
  QuantizedRows &weights;
  Value lhs, result, rows;
  Value x;    ///< the LHS in f32, padded to whole units
  Value sums; ///< of results
};

} // namespace

DotKernel::DotKernel(Emitter &e, QuantizedRows &weights, Value lhs, Value result, int64_t maxColumns)
    : e(e), weights(weights), lhs(lhs), result(result), rows(e.size(lhs, 0)) {
  x = e.alloc({maxDotRows, weights.units() * weights.unit()});
  sums = e.alloc({maxDotRows, int64_t(llvm::alignTo(maxColumns, e.lanes()))});
}

void DotKernel::run() {
  const Product &plain = Product::of(attn::ProductForm::MultiplyAdd);
  Value zero = e.index(0), columns = e.size(result, 1);
  plain.packRows(e, lhs, rows, rows, x);
  // What the last block has beyond the end of a row may be any number, but not infinite.
  e.loop(zero, rows, 1, [&](Value r) {
    e.loop(e.size(lhs, 1), e.size(x, 1), 1, [&](Value c) { e.store(e.scalar(0.0), x, {r, c}); });
  });
  plain.packRows(e, result, rows, rows, sums);
  Value whole = e.roundDown(columns, dequantizedSlots);
  e.loop(zero, whole, dequantizedSlots, [&](Value n) { emitRows(n, dequantizedSlots); });
  e.loop(whole, columns, 1, [&](Value n) { emitRows(n, 1); });
  SmallVector<OpFoldResult> zeros(2, e.b.getIndexAttr(0)), ones(2, e.b.getIndexAttr(1));
  Value written =
      memref::SubViewOp::create(e.b, e.loc, sums, zeros, getAsOpFoldResult(ValueRange{rows, columns}), ones);
  emitUnpackRows(e, written, result);
}

/// The columns whose sums with `rows` rows fit in registers, with operands.
unsigned DotKernel::columnsFor(unsigned rows, unsigned most) {
  unsigned accumulators = e.target.vectorRegisters >= 32 ? 16 : 8;
  return std::clamp(accumulators / rows, 1u, most);
}

/// All rows of the LHS by `columns` columns of the result.
void DotKernel::emitRows(Value firstColumn, unsigned columns) {
  Value zero = e.index(0);
  for (unsigned i = 0; i < columns; ++i)
    weights.prepare(e.add(firstColumn, i), i, zero, e.index(weights.units()));
  Value first = zero;
  for (unsigned count : {8, 4, 2, 1}) {
    Value end = e.roundDown(rows, count);
    unsigned together = columnsFor(count, columns);
    e.loop(first, end, count, [&](Value row) {
      for (unsigned i = 0; i < columns; i += together)
        emitBlock(row, count, e.add(firstColumn, i), i, together, e.index(i * weights.units()));
    });
    first = end;
  }
}

/// Adds the products of a unit of one column and one row of the LHS: sums over a group are multiplied by its scale.
void DotKernel::addRow(Value row, unsigned slot, Value column, Value unit, Value x, MutableArrayRef<Value> sums) {
  Value first = e.mul(unit, weights.unit()), ofGroup;
  SmallVector<QuantizedRows::Register> registers = weights.loadCodes(column, slot, unit);
  for (auto [v, each] : llvm::enumerate(registers)) {
    Value factor = e.loadVector(x, {row, e.add(first, v * e.lanes())});
    if (each.offset) {
      Value element = e.fma(each.codes, each.scale, each.offset);
      sums[v % sums.size()] = e.fma(element, factor, sums[v % sums.size()]);
      continue;
    }
    ofGroup = ofGroup ? e.fma(each.codes, factor, ofGroup) : e.mulf(each.codes, factor);
    if (v + 1 < registers.size() && registers[v + 1].group == each.group)
      continue;
    Value &sum = sums[each.group % sums.size()];
    sum = e.fma(ofGroup, each.scale, sum);
    ofGroup = nullptr;
  }
}

/// Adds products of `count` rows and `columns` columns. `firstUnit`: the units of these columns that have been read.
void DotKernel::emitBlock(Value row, unsigned count, Value column, unsigned slot, unsigned columns, Value firstUnit) {
  // Two chains for each sum hide the latency of additions.
  unsigned chains = count * columns < 8 && vectors() > 1 ? 2 : 1, accumulators = count * columns * chains;
  int64_t partUnits = std::max<int64_t>(1, sumLength * chains / vectors()), units = weights.units();
  SmallVector<Value> zeros(accumulators, e.splat(0.0));
  auto addUnit = [&](Value unit, ValueRange carried) {
    SmallVector<Value> acc(carried);
    Value ahead = e.add(column, int64_t(dequantizedSlots) - slot);
    weights.prefetch(ahead, e.mul(e.add(firstUnit, e.mul(unit, columns)), weights.unitBytes()),
                     columns * weights.unitBytes(), /*intoL1=*/true);
    Value first = e.mul(unit, weights.unit());
    for (unsigned c = 0; c < columns; ++c) {
      if (count == 1) {
        addRow(row, slot + c, e.add(column, c), unit, x, MutableArrayRef(acc).slice(c * chains, chains));
        continue;
      }
      SmallVector<Value> elements = weights.load(e.add(column, c), slot + c, unit);
      for (auto [v, element] : llvm::enumerate(elements))
        for (unsigned r = 0; r < count; ++r) {
          Value &sum = acc[(c * count + r) * chains + v % chains];
          sum = e.fma(element, e.loadVector(x, {e.add(row, r), e.add(first, v * e.lanes())}), sum);
        }
    }
    return acc;
  };
  SmallVector<Value> totals;
  if (units <= partUnits) {
    totals = e.loop(e.index(0), e.index(units), 1, zeros, addUnit);
  } else {
    totals = e.loop(e.index(0), e.index(units), partUnits, zeros, [&](Value begin, ValueRange carried) {
      Value end = e.min(e.add(begin, partUnits), e.index(units));
      SmallVector<Value> part = e.loop(begin, end, 1, zeros, addUnit);
      for (auto [sum, before] : llvm::zip_equal(part, carried))
        sum = e.addf(before, sum);
      return part;
    });
  }
  for (unsigned c = 0; c < columns; ++c)
    for (unsigned r = 0; r < count; ++r) {
      Value sum = totals[(c * count + r) * chains];
      if (chains == 2)
        sum = e.addf(sum, totals[(c * count + r) * chains + 1]);
      Value total =
          vector::ReductionOp::create(e.b, e.loc, vector::CombiningKind::ADD, sum, arith::FastMathFlags::reassoc);
      SmallVector<Value> at = {e.add(row, r), e.add(column, c)};
      e.store(e.addf(e.load(sums, at), total), sums, at);
    }
}

void cpu::emitDequantizedDot(Emitter &e, QuantizedRows &weights, Value lhs, Value result, int64_t maxColumns) {
  DotKernel(e, weights, lhs, result, maxColumns).run();
}

//===----------------------------------------------------------------------===//
// In packing
//===----------------------------------------------------------------------===//

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
