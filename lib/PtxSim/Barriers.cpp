//===- Barriers.cpp - bar and barrier -------------------------------------===//

#include "Block.h"
#include "Decoder.h"

using namespace saccade::ptxsim;

namespace {

/// The value that all lanes of the warp must agree on.
bool uniform(Warp &warp, Slot slot, uint32_t mask, const char *what, uint32_t &value) {
  if (!warp.requireDefined(slot, mask, what))
    return false;
  const uint32_t *row = warp.row<uint32_t>(slot);
  value = row[__builtin_ctz(mask)];
  for (uint32_t rest = mask; rest; rest &= rest - 1)
    if (row[__builtin_ctz(rest)] != value) {
      warp.fail(FindingKind::BadOperand, llvm::Twine(what) + " differs between lanes", __builtin_ctz(rest));
      return false;
    }
  return true;
}

/// Barriers count warps: all lanes that live must be here.
bool wholeWarp(Warp &warp, uint32_t mask) {
  if (mask == warp.live())
    return true;
  warp.fail(FindingKind::Divergence,
            "only " + llvm::Twine(__builtin_popcount(mask)) + " of the warp's " +
                llvm::Twine(__builtin_popcount(warp.live())) + " lanes reach the barrier",
            __builtin_ctz(warp.live() & ~mask));
  return false;
}

/// Numbers: waits, has a count, reduction, and for a reduction whether `p` is the last input.
void arrive(Warp &warp, const Op &op, uint32_t mask) {
  if (!wholeWarp(warp, mask))
    return;
  uint32_t number, expected = 0;
  if (!uniform(warp, op.input(0), mask, "the number of the barrier", number) ||
      (op.numbers[1] && !uniform(warp, op.input(1), mask, "the number of threads", expected)))
    return;
  if (op.numbers[1] && expected == 0)
    return warp.fail(FindingKind::BadOperand, "a barrier for no threads");
  auto reduction = BarrierReduction(op.numbers[2]);
  if (reduction != BarrierReduction::None) {
    Slot input = op.input(op.inputs - 1), result = op.result(0);
    if (!warp.requireDefined(input, mask, "the predicate") || number >= 16)
      return;
    Barrier &barrier = warp.block.barriers[number];
    barrier.count += __builtin_popcount(warp.predicate(input) & mask);
    barrier.lanes += __builtin_popcount(mask);
    warp.reduction = {result, uint32_t(reduction), mask};
    warp.setUndefined(result, 0, mask);
  }
  warp.block.arrive(warp, number, expected, op.numbers[0]);
}

void synchroniseWarp(Warp &warp, const Op &op, uint32_t mask) {
  if (!warp.requireDefined(op.input(0), mask, "the mask"))
    return;
  const uint32_t *members = warp.row<uint32_t>(op.input(0));
  uint32_t todo = mask;
  while (todo) {
    unsigned lane = __builtin_ctz(todo);
    uint32_t wanted = members[lane] & warp.live();
    if (!(members[lane] >> lane & 1))
      return warp.fail(FindingKind::BadOperand, "the mask does not name the lane itself", lane);
    if (wanted & ~mask)
      return warp.fail(FindingKind::Divergence, "the mask names lanes that are elsewhere",
                       __builtin_ctz(wanted & ~mask));
    warp.synchronise(wanted);
    todo &= ~wanted;
  }
}

bool decodeBarrier(Decoder &d) {
  if (d.take("warp")) {
    if (!d.take("sync") || !d.wantOperands(1))
      return d.fail("wanted .sync");
    d.input(d.at(0), Type::B32);
    d.op.tracksUndefined = true;
    return d.emit(synchroniseWarp);
  }
  d.take("cta");
  int kind = d.takeOneOf({"sync", "arrive", "red"});
  if (kind < 0)
    return d.fail("this barrier is not simulated");
  bool reduces = kind == 2;
  int reduction = -1;
  if (reduces && (reduction = d.takeOneOf({"popc", "and", "or"})) < 0)
    return d.fail("wanted .popc, .and or .or");
  // Without .aligned, lanes might arrive one by one; whoever does that here gets a finding, never a wrong result.
  d.take("aligned");
  unsigned first = reduces ? 1 : 0;
  if (reduces) {
    Type type = d.type();
    if ((type == Type::U32) != (reduction == 0))
      return d.fail("wanted .popc.u32, .and.pred or .or.pred");
    if (!d.wantOperands(3, 4))
      return false;
    d.result(d.at(0), type);
  } else if (!d.wantOperands(kind == 1 ? 2 : 1, 2)) {
    return false;
  }
  bool counted = d.count() == first + (reduces ? 3 : 2);
  d.input(d.at(first), Type::U32);
  if (counted)
    d.input(d.at(first + 1), Type::U32);
  if (reduces)
    d.input(d.at(d.count() - 1), Type::Pred);
  d.op.numbers[0] = kind != 1;
  d.op.numbers[1] = counted;
  d.op.numbers[2] = reduction + 1;
  d.op.tracksUndefined = true;
  return d.emit(arrive);
}

} // namespace

void saccade::ptxsim::addBarrierInstructions(InstructionTable &table) {
  table.add("bar", TypeClass::Any, decodeBarrier);
  table.add("barrier", TypeClass::Any, decodeBarrier);
}
