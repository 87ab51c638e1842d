//===- DequantizedDot.cpp - Few rows times quantized weights ------------------===//
//
// Lanes are neighbours along K, as they are in blocks, so that weights need no transposition and no memory.
//
//===----------------------------------------------------------------------===//
#include "DequantizedDot.h"
#include "BlockedMatmul.h"
#include "Pack.h"
#include "Prefetch.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::cpu;

DotKernel::DotKernel(Emitter &e, QuantizedRows &weights, Value lhs, Value result, int64_t maxColumns)
    : e(e), weights(weights), lhs(lhs), rows(e.size(lhs, 0)), result(result) {
  x = e.alloc({maxDotRows, weights.units() * weights.unit() + rowPadding / 4});
  sums = e.alloc({maxDotRows, int64_t(llvm::alignTo(maxColumns, e.lanes()))});
}

void DotKernel::run() {
  const Product &plain = Product::of(attn::ProductForm::MultiplyAdd);
  Value zero = e.index(0), columns = e.size(result, 1);
  plain.packRows(e, lhs, rows, rows, x);
  // What the last block has beyond the end of a row may be any number, but not infinite.
  e.loop(zero, rows, 1, [&](Value r) {
    e.loop(e.size(lhs, 1), e.index(weights.units() * weights.unit()), 1,
           [&](Value c) { e.store(e.scalar(0.0), x, {r, c}); });
  });
  prepareRows();
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
unsigned DotKernel::columnsFor(unsigned rows, unsigned most) { return std::clamp(mostAccumulators() / rows, 1u, most); }

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

void DotKernel::prefetchAhead(Value column, unsigned slot, unsigned columns, Value firstUnit, Value unit) {
  Value ahead = e.add(column, int64_t(dequantizedSlots) - slot);
  weights.prefetch(ahead, e.mul(e.add(firstUnit, e.mul(unit, columns)), weights.unitBytes()),
                   columns * weights.unitBytes(), /*intoL1=*/true);
}

void DotKernel::addTotal(Value vector, Value row, Value column) {
  Value total =
      vector::ReductionOp::create(e.b, e.loc, vector::CombiningKind::ADD, vector, arith::FastMathFlags::reassoc);
  SmallVector<Value> at = {row, column};
  e.store(e.addf(e.load(sums, at), total), sums, at);
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

void DotKernel::emitBlock(Value row, unsigned count, Value column, unsigned slot, unsigned columns, Value firstUnit) {
  // Two chains for each sum hide the latency of additions.
  unsigned chains = count * columns < 8 && vectors() > 1 ? 2 : 1, accumulators = count * columns * chains;
  int64_t partUnits = std::max<int64_t>(1, sumLength * chains / vectors()), units = weights.units();
  SmallVector<Value> zeros(accumulators, e.splat(0.0));
  auto addUnit = [&](Value unit, ValueRange carried) {
    SmallVector<Value> acc(carried);
    prefetchAhead(column, slot, columns, firstUnit, unit);
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
      addTotal(sum, e.add(row, r), e.add(column, c));
    }
}

void cpu::emitDequantizedDot(Emitter &e, QuantizedRows &weights, Value lhs, Value result, int64_t maxColumns,
                             bool inInt8) {
  if (inInt8)
    Int8DotKernel(e, weights, lhs, result, maxColumns).run();
  else
    DotKernel(e, weights, lhs, result, maxColumns).run();
}
