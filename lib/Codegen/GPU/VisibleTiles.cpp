//===- VisibleTiles.cpp - Key tiles that a mask leaves ------------------------===//
//
// Tests 32 tiles at once and keeps the results as two sets of bits, from which a loop takes one tile after the other.
//
//===----------------------------------------------------------------------===//
#include "VisibleTiles.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "saccade/Dialect/Attn/Analysis/RuntimeMaskInputs.h"
#include "saccade/Dialect/Attn/IR/Position.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

/// Tiles that a warp tests at once.
static constexpr int64_t groupTiles = 32;

namespace {

/// Emits the test of the tiles of one group, at the start of the body of `groups`.
class GroupTest {
public:
  GroupTest(Emitter &e, ScoringOpInterface op, const TileLoop &loop, scf::ForOp groups)
      : e(e), op(op), loop(loop), groups(groups), numbers(e.b, e.loc), at(emitPosition(e.b, e.loc, op)) {}

  /// Returns false if no tile can be proved empty or full.
  bool run() {
    Value lane = e.rem(e.thread(), groupTiles);
    Value first = e.add(groups.getInductionVar(), e.mul(lane, loop.width));
    Value end = e.add(first, loop.width), keys = e.toI32(loop.keys);
    // A tile after the last one is tested as if it had the last key.
    Value low = e.min(e.max(first, e.i32(0)), e.add(keys, -1)), high = e.max(e.add(e.min(end, keys), -1), low);
    StagedInt firstKey = opaque(at.key);
    Interval ofKeys(numbers.add(firstKey, tilePosition(low)), numbers.add(firstKey, tilePosition(high)));
    RuntimeMaskInputs inputs(op, RuntimeMaskInputs::attachedTables(op));
    Coverage coverage = analyzeMask(op.getMask(), {opaque(at.batch), heads(), queries(), ofKeys}, inputs, numbers);
    if (coverage.mayHold.isConstant(1) && coverage.mayFail.isConstant(1))
      return false;
    Value mayHold = numbers.materialize(coverage.mayHold, /*isTruth=*/true);
    Value holds = numbers.materialize(numbers.negate(coverage.mayFail), /*isTruth=*/true);
    e.b.setInsertionPoint(groups.getBody()->getTerminator());
    visible = ballot(e.andi(e.isLess(first, loop.tiles.end), mayHold));
    Value isWhole = e.andi(e.isAtMost(e.i32(0), first), e.isAtMost(end, keys));
    full = ballot(e.andi(isWhole, holds));
    return true;
  }

  Value visible, full; ///< a bit per tile, i32

private:
  /// Opaque to LLVM, which would otherwise keep much of the test in registers while tiles are computed.
  StagedInt opaque(Value position) {
    if (op.getAt().empty())
      return 0;
    Value zero = e.toIndex(e.optimizationBarrier(e.i32(0)));
    return numbers.fromValue(e.add(position, zero));
  }
  /// A position in the tile of keys, whose extent fits into 32 bits.
  StagedInt tilePosition(Value i32) { return StagedInt(e.toIndex(i32), 31); }

  Interval upFrom(StagedInt first, Value count) {
    numbers.setInsertionPointFor(count);
    return {first, numbers.add(first, numbers.sub(StagedInt(count, 48), 1))};
  }
  Interval heads() { return loop.heads ? upFrom(opaque(at.head), loop.heads) : Interval(opaque(at.head)); }
  Interval queries() {
    if (!loop.heads)
      return upFrom(opaque(at.query), loop.queries);
    numbers.setInsertionPointFor({loop.queries, loop.heads});
    return upFrom(opaque(at.query), e.b.createOrFold<arith::DivUIOp>(e.loc, loop.queries, loop.heads));
  }

  Value ballot(Value condition) {
    return NVVM::VoteSyncOp::create(e.b, e.loc, e.b.getI32Type(), e.i32(-1), condition, NVVM::VoteSyncKind::ballot);
  }

  Emitter &e;
  ScoringOpInterface op;
  const TileLoop &loop;
  scf::ForOp groups;
  StagedIntBuilder numbers;
  Position at;
};

} // namespace

void device::forEachTile(Emitter &e, const TileLoop &loop, function_ref<void(Value)> start,
                         function_ref<Value(Value)> isFull, function_ref<void(const KeyTile &)> body) {
  start(loop.tiles.begin);
  e.loop(loop.tiles.begin, loop.tiles.end, loop.width, [&](Value first) {
    body({first, [&] { return isFull(first); },
          [&](function_ref<void(Value)> then) {
            Value next = e.add(first, loop.width);
            e.ifElse(e.isLess(next, loop.tiles.end), [&] { then(next); });
          }});
  });
}

void device::forEachVisibleTile(Emitter &e, ScoringOpInterface op, const TileLoop &loop,
                                function_ref<void(Value)> start, function_ref<void(const KeyTile &)> body) {
  auto groups = scf::ForOp::create(e.b, e.loc, loop.tiles.begin, loop.tiles.end, e.i32(groupTiles * loop.width));
  OpBuilder::InsertionGuard guard(e.b);
  e.b.setInsertionPointToStart(groups.getBody());
  GroupTest test(e, op, loop, groups);
  if (!test.run()) {
    e.b.setInsertionPoint(groups);
    auto isUnknown = [&](Value) -> Value { return arith::ConstantIntOp::create(e.b, e.loc, 0, 1); };
    forEachTile(e, loop, start, isUnknown, body);
    groups.erase();
    return;
  }
  auto isAny = [&](Value bits) { return e.compare(arith::CmpIPredicate::ne, bits, e.i32(0)); };
  auto indexOfFirst = [&](Value bits) -> Value { return math::CountTrailingZerosOp::create(e.b, e.loc, bits); };
  auto firstKey = [&](Value bits) { return e.add(groups.getInductionVar(), e.mul(indexOfFirst(bits), loop.width)); };
  e.ifElse(isAny(test.visible), [&] {
    start(firstKey(test.visible));
    scf::WhileOp::create(
        e.b, e.loc, TypeRange{e.b.getI32Type()}, ValueRange{test.visible},
        [&](OpBuilder &, Location, ValueRange bits) { scf::ConditionOp::create(e.b, e.loc, isAny(bits[0]), bits); },
        [&](OpBuilder &, Location, ValueRange bits) {
          auto isFull = [&]() -> Value {
            Value bit = arith::ShRUIOp::create(e.b, e.loc, test.full, indexOfFirst(bits[0]));
            return arith::TruncIOp::create(e.b, e.loc, e.b.getI1Type(), bit);
          };
          Value rest = e.andi(bits[0], e.add(bits[0], -1));
          body({firstKey(bits[0]), isFull,
                [&](function_ref<void(Value)> then) { e.ifElse(isAny(rest), [&] { then(firstKey(rest)); }); }});
          scf::YieldOp::create(e.b, e.loc, rest);
        });
  });
}
