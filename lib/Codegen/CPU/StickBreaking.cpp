//===- StickBreaking.cpp - Weights by stick-breaking --------------------------===//
//
// Key j takes the part σ(s) of what the keys after it leave of a stick of length 1 (Tan et al. 2024, "Scaling
// Stick-Breaking Attention"). With t = s · log2 e, and a = log2(1 + 2^t) = −log2(1 − σ(s)), its weight is
//
//     2^(min(t, 0) − log2(1 + 2^−|t|) − Σ a of the visible keys after it)
//
// Sums have terms of one sign, so a weight has the error of its own scores and no quotient. Columns are visited from
// the last to the first. Within a register of lanes the sum is a scan by shifts of 1, 2, 4, … lanes. Masked keys have
// t = −∞, so a = 0 and the weight is 0. Where later keys leave less than the smallest weight, all weights are 0, and
// scores are not evaluated.
//
//===----------------------------------------------------------------------===//
#include "ScoreTile.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::cpu;

/// Lane l of the result is lane l + count of `x`, or 0.
static Value shiftLanes(Emitter &e, Value x, int64_t count) {
  int64_t lanes = e.lanes();
  SmallVector<int64_t> from =
      llvm::map_to_vector(llvm::seq<int64_t>(0, lanes), [&](int64_t lane) { return std::min(lane + count, lanes); });
  return vector::ShuffleOp::create(e.b, e.loc, x, e.splat(0.0), from);
}

static Value firstLaneInAll(Emitter &e, Value x) {
  return vector::ShuffleOp::create(e.b, e.loc, x, x, SmallVector<int64_t>(e.lanes(), 0));
}

static Value firstLane(Emitter &e, Value x) { return vector::ExtractOp::create(e.b, e.loc, x, ArrayRef<int64_t>{0}); }

/// The terms of a register of keys.
struct StickTerms {
  Value taken;    ///< log2 of the part that a key takes
  Value later;    ///< Σ a of the keys of the register after it
  Value ofVector; ///< Σ a of all keys, in all lanes
};

static StickTerms emitTerms(Emitter &e, Value t) {
  Value zero = e.splat(0.0);
  auto isPositive = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OGT, t, zero); // false for NaN
  Value distance = arith::NegFOp::create(e.b, e.loc, math::AbsFOp::create(e.b, e.loc, t));
  Value log = emitLog2OfOnePlus(e, emitExp2(e, distance));
  Value rest = e.addf(e.maxf(zero, t), log);
  StickTerms terms;
  terms.taken = e.subf(e.select(isPositive, zero, t), log);
  terms.later = shiftLanes(e, rest, 1);
  for (int64_t distance = 1; distance < e.lanes(); distance *= 2)
    terms.later = e.addf(terms.later, shiftLanes(e, terms.later, distance));
  terms.ofVector = firstLaneInAll(e, e.addf(terms.later, rest));
  return terms;
}

Value ScoreTile::breakColumns(const WeighedRow &row, KeyRange columns, Value taken) {
  Value to = columns.end;
  int64_t maxVectors = 2;
  if (!regions.empty())
    maxVectors = std::max<int64_t>(product.traits.kPackElements, regions.preferredRegisters(maxVectors));
  for (int64_t vectors : {4, 2, 1}) {
    if (vectors > maxVectors)
      continue;
    int64_t step = vectors * e.lanes();
    Value length = e.roundDown(e.sub(to, columns.begin), step);
    taken = e.loop(e.index(0), length, step, taken, [&](Value done, ValueRange carried) -> SmallVector<Value> {
      Value column = e.sub(e.sub(to, done), e.index(step));
      auto store = [&](ArrayRef<Value> weights) {
        for (auto [u, weight] : llvm::enumerate(weights))
          e.storeVector(weight, scores, {row.row, e.add(column, int64_t(u) * e.lanes())});
      };
      auto weigh = [&]() -> SmallVector<Value> {
        SmallVector<Value> given, weights(vectors);
        Value sum = carried[0], factor = e.broadcast(toBase2);
        for (int64_t u = 0; u < vectors; ++u)
          given.push_back(e.loadVector(scores, {row.row, e.add(column, u * e.lanes())}));
        for (int64_t u = vectors; u-- > 0;) {
          StickTerms terms = emitTerms(e, e.mulf(given[u], factor));
          weights[u] = emitExp2(e, e.subf(terms.taken, e.addf(terms.later, sum)), error, smallestWeight);
          sum = e.addf(sum, terms.ofVector);
        }
        if (!regions.empty())
          regions.apply(given, weights, column, {}, /*isBounded=*/true);
        store(weights);
        return {sum};
      };
      auto skip = [&]() -> SmallVector<Value> {
        store(SmallVector<Value>(vectors, e.splat(0.0)));
        return {carried[0]};
      };
      // False for NaN.
      Value isUsedUp = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OGT, firstLane(e, carried[0]),
                                             e.scalar(e.type.isF64() ? 1022.0 : -smallestWeight));
      return {e.choose(isUsedUp, skip, weigh)[0]};
    })[0];
    to = e.sub(to, length);
  }
  return taken;
}

Value ScoreTile::breakStick(const WeighedRow &row, const ColumnRuns &group) {
  Value taken = group.forEachDescending(e, e.splat(0.0), [&](KeyRange run, ValueRange carried) {
    return SmallVector<Value>{breakColumns(row, columnsOf(run), carried[0])};
  })[0];
  failed |= regions.failed;
  // Packed weights would replace scores that are not read yet.
  if (product.traits.form != ProductForm::MultiplyAdd)
    weighRow(row, group);
  return taken;
}

/// The accumulator of earlier keys is multiplied by the rest of the stick, whose logarithm is the maximum of the state.
void ScoreTile::breakSticks(const GroupState &state, Value firstRow, Value rows, const ColumnRuns &group,
                            function_ref<void(Value row)> onRow) {
  e.loop(e.index(0), rows, 1, [&](Value row) {
    onRow(row);
    Value tileRow = e.add(firstRow, row);
    if (!regions.empty())
      regions.beginRow(at, tileRow, /*factor=*/Value());
    Value taken = breakStick({row, tileRow, Value(), Value(), Value()}, group);
    e.store(e.subf(e.load(op.getMax(), tileRow), firstLane(e, taken)), op.getMax(), tileRow);
    e.store(firstLane(e, e.exp2(arith::NegFOp::create(e.b, e.loc, taken))), state.factors, row);
  });
}
