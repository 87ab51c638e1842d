//===- StickBreaking.cpp - Weights by stick-breaking --------------------------===//
//
// Key j takes the part σ(s) of what the keys after it leave of a stick of length 1 (Tan et al. 2024, "Scaling
// Stick-Breaking Attention"). With u = e^s, a key leaves 1 − σ(s) = 1 / (1 + u), and its weight is
//
//     u / Π (1 + u) of itself and the visible keys after it
//
// Masked keys have u = 0: they take nothing and leave all. StickWeights.cpp has the arithmetic.
//
// Chunks of columns are visited from the last to the first, and the rows of a group within a chunk, so that the
// processor overlaps rows, which depend on each other in nothing. Chunks before one that leaves too little of all
// sticks of the group are not evaluated, and have no weights.
//
//===----------------------------------------------------------------------===//
#include "ScoreTile.h"
#include "StickWeights.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::cpu;

void ScoreTile::allocateWeights() {
  if (op.getStickBreaking() && product.traits.roundsWeights())
    weights = e.alloc(cast<MemRefType>(scores.getType()).getShape());
}

/// The scores of a row from `chunk.column` on, −∞ for registers outside of its columns.
SmallVector<Value> ScoreTile::loadChunk(Value row, const StickChunk &chunk) {
  auto load = [&](bool isWhole) {
    SmallVector<Value> given;
    for (int64_t i = 0; i < chunk.registers; ++i) {
      Value column = e.add(chunk.column, i * e.lanes()), score = e.loadVector(scores, {row, column});
      Value isBefore = e.isLess(column, chunk.within.begin), isWithin = e.isLess(column, chunk.within.end);
      Value none = e.splat(-std::numeric_limits<double>::infinity());
      given.push_back(isWhole ? score : e.select(isBefore, none, e.select(isWithin, score, none)));
    }
    return given;
  };
  return e.choose(chunk.isWhole, [&] { return load(true); }, [&] { return load(false); });
}

/// Replaces the scores of a chunk of a row by weights. Returns whether it leaves enough of the stick for other weights
/// than 0.
Value ScoreTile::breakChunk(const GroupState &state, Value row, Value tileRow, const StickChunk &chunk) {
  SmallVector<Value> given = loadChunk(row, chunk), exponents;
  for (Value score : given)
    exponents.push_back(e.mulf(score, e.broadcast(toBase2)));
  StickWeights sticks(e, error);
  Value rest = e.broadcast(e.load(state.factors, row));
  SmallVector<Value> weights = sticks.weigh(exponents, rest);
  Value sum = e.loadVector(state.laneValues, {row, e.index(0)});
  for (Value weight : weights)
    sum = e.addf(sum, weight);
  e.storeVector(sum, state.laneValues, {row, e.index(0)});
  if (!regions.empty()) {
    regions.beginRow(at, tileRow, /*factor=*/Value());
    int64_t step = std::max<int64_t>(product.traits.kPackElements, regions.preferredRegisters(2));
    step = std::min(step, chunk.registers);
    for (int64_t i = 0; i < chunk.registers; i += step)
      regions.apply(ArrayRef(given).slice(i, step), MutableArrayRef(weights).slice(i, step),
                    e.add(chunk.column, i * e.lanes()), {}, /*isBounded=*/true);
    failed |= regions.failed;
  }
  product.storeWeights(e, weights, this->weights, row, chunk.column);
  rest = vector::ExtractOp::create(e.b, e.loc, rest, ArrayRef<int64_t>{0});
  e.store(rest, state.factors, row);
  return sticks.isLeft(rest);
}

/// The accumulator of earlier keys is multiplied by the rest of the stick, whose logarithm is the maximum of the state.
ColumnRuns ScoreTile::breakSticks(const GroupState &state, Value firstRow, Value rows, const ColumnRuns &group,
                                  function_ref<void(Value row)> onRow) {
  StickWeights sticks(e, error);
  e.loop(e.index(0), rows, 1, [&](Value row) {
    if (regions.empty())
      onRow(row);
    e.store(e.scalar(1.0), state.factors, row);
    e.storeVector(e.splat(0.0), state.laneValues, {row, e.index(0)});
  });
  // Runs begin and end at panels, so chunks of one panel belong to one run.
  std::optional<KeyRange> single = group.asRange();
  int64_t registers = single ? 4 : 2, width = registers * e.lanes();
  Value none = arith::ConstantIntOp::create(e.b, e.loc, 0, 1), some = arith::ConstantIntOp::create(e.b, e.loc, 1, 1);
  auto breakRun = [&](KeyRange run, ValueRange carried) {
    KeyRange within = columnsOf(run);
    Value first = e.roundDown(within.begin, width), last = e.sub(e.roundUp(within.end, width), e.index(width));
    return e.loop(first, e.add(last, width), width, carried, [&](Value at, ValueRange carried) {
      Value column = e.sub(last, e.sub(at, first)), end = e.add(column, width);
      Value isWhole = arith::AndIOp::create(e.b, e.loc, e.compare(arith::CmpIPredicate::sle, within.begin, column),
                                            e.compare(arith::CmpIPredicate::sle, end, within.end));
      StickChunk chunk = {column, registers, within, isWhole};
      auto weigh = [&]() -> SmallVector<Value> {
        Value isLeft = e.loop(e.index(0), rows, 1, none, [&](Value row, ValueRange any) -> SmallVector<Value> {
          if (!regions.empty())
            onRow(row);
          Value own = breakChunk(state, row, e.add(firstRow, row), chunk);
          return {arith::OrIOp::create(e.b, e.loc, any[0], own)};
        })[0];
        return {isLeft, column};
      };
      auto skip = [&]() -> SmallVector<Value> {
        if (!single)
          e.loop(e.index(0), rows, 1, [&](Value row) {
            product.storeWeights(e, SmallVector<Value>(registers, e.splat(0.0)), weights, row, column);
          });
        return {carried[0], carried[1]};
      };
      return e.choose(carried[0], weigh, skip);
    });
  };
  Value lowest = group.forEachDescending(e, {some, group.hull(e).end}, breakRun)[1];
  for (int64_t first = 0; first < groupRows(); first += e.lanes()) {
    Value mask = lanesBelow(e, e.sub(rows, e.index(first)));
    Value sums =
        reduceRows(e, state.laneValues, first, groupRows(), 0.0, [&](Value x, Value y) { return e.addf(x, y); });
    StickRest rest = sticks.finish(e.loadVector(state.factors, e.index(first)), sums);
    e.storeVector(rest.factor, state.factors, e.index(first));
    Value at = e.add(firstRow, first);
    Value max =
        vector::MaskedLoadOp::create(e.b, e.loc, e.vectorType(), op.getMax(), ValueRange{at}, mask, e.splat(0.0));
    vector::MaskedStoreOp::create(e.b, e.loc, op.getMax(), ValueRange{at}, mask, e.addf(max, rest.log));
  }
  return single ? ColumnRuns(KeyRange{e.max(single->begin, lowest), single->end}) : group;
}
