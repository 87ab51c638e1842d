//===- VisibleColumns.cpp - Visible columns of a group of rows ----------------===//
//
// Tests panels one by one and merges them to runs. The range of captured tensor elements over the keys of a panel is
// the same for all groups of rows, so it is computed once per tile.
//
//===----------------------------------------------------------------------===//
#include "VisibleColumns.h"
#include "saccade/Dialect/Attn/Analysis/RuntimeMaskInputs.h"
#include "saccade/Dialect/Attn/IR/Position.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::cpu;

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

KeyRange ColumnRuns::load(Emitter &e, Value run) const {
  return {e.load(bounds, {run, e.index(0)}), e.load(bounds, {run, e.index(1)})};
}

Value ColumnRuns::isNonEmpty(Emitter &e) const {
  return bounds ? e.isLess(e.index(0), count) : e.isLess(single.begin, single.end);
}

KeyRange ColumnRuns::hull(Emitter &e) const {
  if (!bounds)
    return single;
  // Without runs, an empty range.
  Value last = e.max(e.sub(count, e.index(1)), e.index(0)), isSome = isNonEmpty(e);
  KeyRange from = load(e, e.index(0)), to = load(e, last);
  return {e.select(isSome, from.begin, e.index(0)), e.select(isSome, to.end, e.index(0))};
}

void ColumnRuns::forEach(Emitter &e, Body body) const {
  if (!bounds)
    return body(single);
  e.loop(e.index(0), count, 1, [&](Value run) { body(load(e, run)); });
}

SmallVector<Value> ColumnRuns::forEach(Emitter &e, ValueRange inits, CarryingBody body) const {
  if (!bounds)
    return body(single, inits);
  return e.loop(e.index(0), count, 1, inits,
                [&](Value run, ValueRange carried) { return body(load(e, run), carried); });
}

SmallVector<Value> ColumnRuns::forEachDescending(Emitter &e, ValueRange inits, CarryingBody body) const {
  if (!bounds)
    return body(single, inits);
  Value last = e.sub(count, e.index(1));
  return e.loop(e.index(0), count, 1, inits,
                [&](Value i, ValueRange carried) { return body(load(e, e.sub(last, i)), carried); });
}

void ColumnRuns::forEach(Emitter &e, Body full, Body partial) const {
  if (!bounds)
    return partial(single);
  e.loop(e.index(0), count, 1, [&](Value run) {
    Value isPartial =
        arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ne, e.load(bounds, {run, e.index(2)}), e.index(0));
    KeyRange range = load(e, run);
    e.ifElse(isPartial, [&] { partial(range); }, [&] { full(range); });
  });
}

//===----------------------------------------------------------------------===//
// Panels
//===----------------------------------------------------------------------===//

VisibleColumns::VisibleColumns(Emitter &e, ScoringOpInterface op, Value keys, int64_t maxKeys)
    : op(op), keys(keys), panels(llvm::divideCeil(maxKeys, 2 * e.lanes())) {
  bounds = memref::AllocOp::create(e.b, e.loc, MemRefType::get({panels, 3}, e.b.getIndexType()));
}

/// Whether `value` dominates `op`.
static bool isKnownAt(Value value, Operation *op) {
  if (!value)
    return true;
  Block *block = value.getParentBlock();
  if (block == op->getBlock())
    return isa<BlockArgument>(value) || value.getDefiningOp()->isBeforeInBlock(op);
  return block->getParent()->isProperAncestor(op->getParentRegion());
}

/// The inputs of the mask analysis for one panel.
class VisibleColumns::Inputs : public RuntimeMaskInputs {
public:
  Inputs(VisibleColumns &columns, Emitter &e, Value panel, Interval keys)
      : RuntimeMaskInputs(columns.op), columns(columns), e(e), panel(panel), keysOfPanel(keys) {}

  std::optional<Interval> elements(StagedIntBuilder &b, unsigned capture, ArrayRef<Interval> place) override {
    Operation *front = columns.bounds.getDefiningOp();
    bool isOfKeys = !place.empty() && place.back().low == keysOfPanel.low && place.back().high == keysOfPanel.high &&
                    llvm::all_of(place.drop_back(), [&](const Interval &at) {
                      return at.isPoint() && isKnownAt(at.low.getValue(), front);
                    });
    auto type = cast<ShapedType>(columns.op.getCaptures()[capture].getType());
    bool isInteger = type.getElementType().isIndex() || type.getElementType().isInteger();
    unsigned width = type.getElementType().isIndex() ? 64 : isInteger ? type.getElementTypeBitWidth() : 0;
    if (!isOfKeys || !isInteger || width > 64)
      return RuntimeMaskInputs::elements(b, capture, place);
    Value table = tableOf(capture, place);
    b.setInsertionPointFor(panel);
    OpBuilder &at = *b.getBuilder();
    unsigned bits = width == 1 ? 0 : width - 1;
    auto load = [&](int64_t column) {
      Value which = arith::ConstantIndexOp::create(at, b.getLoc(), column);
      return StagedInt(memref::LoadOp::create(at, b.getLoc(), table, ValueRange{panel, which}), bits);
    };
    StagedInt low = load(0), high = load(1);
    return Interval(low, high);
  }

private:
  /// memref<panels x 2 x index> of minimum and maximum, filled before the loop over groups.
  Value tableOf(unsigned capture, ArrayRef<Interval> place) {
    SmallVector<StagedInt> leading = llvm::map_to_vector(place.drop_back(), [](const Interval &at) { return at.low; });
    for (auto &[known, where, table] : columns.tables)
      if (known == capture && where == leading)
        return table;
    Operation *front = columns.bounds.getDefiningOp();
    OpBuilder b(front->getBlock(), std::next(front->getIterator()));
    Emitter before{b, e.loc, e.target, e.type};
    Value table = memref::AllocOp::create(b, e.loc, MemRefType::get({columns.panels, 2}, b.getIndexType()));
    int64_t width = 2 * e.lanes();
    before.loop(before.index(0), before.ceilDiv(columns.keys, width), 1, [&](Value number) {
      StagedIntBuilder numbers(b, e.loc);
      SmallVector<Interval> here(place);
      here.back() = columns.keysOf(numbers, number, width);
      std::optional<Interval> found = RuntimeMaskInputs::elements(numbers, capture, here);
      before.store(numbers.materialize(found->low, /*isTruth=*/false), table, {number, before.index(0)});
      before.store(numbers.materialize(found->high, /*isTruth=*/false), table, {number, before.index(1)});
    });
    columns.tables.emplace_back(capture, leading, table);
    return table;
  }

  VisibleColumns &columns;
  Emitter &e;
  Value panel;
  Interval keysOfPanel;
};

Interval VisibleColumns::keysOf(StagedIntBuilder &numbers, Value panel, int64_t width) {
  StagedInt start = numbers.fromValue(emitPosition(*numbers.getBuilder(), numbers.getLoc(), op).key);
  StagedInt first = numbers.mul(StagedInt(panel, 40), width), count = StagedInt(keys, 48);
  StagedInt last = numbers.sub(numbers.min(numbers.add(first, width), count), 1);
  return {numbers.add(start, first), numbers.add(start, last)};
}

ColumnRuns VisibleColumns::find(Emitter &e, Value head, Value firstQuery, Value lastQuery, KeyRange columns) {
  int64_t width = 2 * e.lanes();
  Value begin = e.div(e.max(columns.begin, e.index(0)), width);
  Value end = e.select(e.isLess(columns.begin, columns.end), e.ceilDiv(e.max(columns.end, e.index(0)), width), begin);
  // The number of runs, and the kind of the previous panel: 0 empty, 1 full, 2 partial.
  SmallVector<Value> inits = {e.index(0), e.index(0)};
  auto loop = scf::ForOp::create(e.b, e.loc, begin, end, e.index(1), inits);
  OpBuilder b = OpBuilder::atBlockBegin(loop.getBody());
  StagedIntBuilder numbers(b, e.loc, loop);
  Value panel = loop.getInductionVar();
  Interval keysOfPanel = keysOf(numbers, panel, width);
  MaskBox box{numbers.fromValue(emitPosition(b, e.loc, op).batch),
              numbers.fromValue(head),
              {StagedInt(firstQuery), StagedInt(lastQuery)},
              keysOfPanel};
  Inputs inputs(*this, e, panel, keysOfPanel);
  Coverage coverage = analyzeMask(op.getMask(), box, inputs, numbers);
  if (coverage.mayHold.isConstant(1) && coverage.mayFail.isConstant(1)) {
    // All panels are partial. The emitted ops are dead code.
    loop.erase();
    return columns;
  }
  Value mayHold = numbers.materialize(coverage.mayHold, /*isTruth=*/true);
  Value mayFail = numbers.materialize(coverage.mayFail, /*isTruth=*/true);
  b.setInsertionPointToEnd(loop.getBody());
  Emitter in{b, e.loc, e.target, e.type};
  Value first = in.mul(panel, width), last = in.add(first, width);
  auto isAtMost = [&](Value x, Value y) -> Value {
    return arith::CmpIOp::create(b, e.loc, arith::CmpIPredicate::sle, x, y);
  };
  Value isWhole = arith::AndIOp::create(b, e.loc, isAtMost(columns.begin, first), isAtMost(last, columns.end));
  Value isMasked = in.select(isWhole, mayFail, arith::ConstantOp::create(b, e.loc, b.getBoolAttr(true)));
  Value kind = in.select(mayHold, in.select(isMasked, in.index(2), in.index(1)), in.index(0));
  Value count = loop.getRegionIterArgs()[0], before = loop.getRegionIterArgs()[1];
  auto isDifferent = [&](Value x, Value y) -> Value {
    return arith::CmpIOp::create(b, e.loc, arith::CmpIPredicate::ne, x, y);
  };
  Value begins = arith::AndIOp::create(b, e.loc, mayHold, isDifferent(kind, before));
  in.ifElse(begins, [&] {
    in.store(in.max(first, columns.begin), bounds, {count, in.index(0)});
    in.store(in.sub(kind, in.index(1)), bounds, {count, in.index(2)});
  });
  Value next = in.add(count, in.select(begins, in.index(1), in.index(0)));
  in.ifElse(mayHold, [&] { in.store(in.min(last, columns.end), bounds, {in.sub(next, in.index(1)), in.index(1)}); });
  scf::YieldOp::create(b, e.loc, ValueRange{next, kind});
  return {bounds, loop.getResult(0)};
}
