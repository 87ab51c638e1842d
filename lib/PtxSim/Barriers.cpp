//===- Barriers.cpp - bar and barrier -------------------------------------===//

#include "Block.h"
#include "Decoder.h"

using namespace saccade::ptxsim;

namespace {

/// Reads an operand that must be equal in all lanes of the warp.
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

/// Barriers count warps, so all live lanes must arrive together.
bool wholeWarp(Warp &warp, uint32_t mask) {
  if (mask == warp.live())
    return true;
  warp.fail(FindingKind::Divergence,
            "only " + llvm::Twine(__builtin_popcount(mask)) + " of the warp's " +
                llvm::Twine(__builtin_popcount(warp.live())) + " lanes reach the barrier",
            __builtin_ctz(warp.live() & ~mask));
  return false;
}

/// Numbers: waits, has a thread count, reduction. The predicate of a reduction is the last input.
void arrive(Warp &warp, const Op &op, uint32_t mask) {
  if (!wholeWarp(warp, mask))
    return;
  uint32_t number, expected = 0;
  if (!uniform(warp, op.input(0), mask, "the barrier number", number) ||
      (op.numbers[1] && !uniform(warp, op.input(1), mask, "the number of threads", expected)))
    return;
  if (op.numbers[1] && expected == 0)
    return warp.fail(FindingKind::BadOperand, "found a thread count of 0, expected a positive multiple of 32");
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
    uint32_t present = members[lane] & warp.live();
    if (!(members[lane] >> lane & 1))
      return warp.fail(FindingKind::BadOperand, "the member mask does not include the lane itself", lane);
    if (present & ~mask)
      return warp.fail(FindingKind::Divergence, "the member mask names lanes that have not reached the instruction",
                       __builtin_ctz(present & ~mask));
    warp.synchronise(present);
    todo &= ~present;
  }
}

/// numbers[0]: the arrival releases.
void arriveAtCluster(Warp &warp, const Op &op, uint32_t mask) {
  if (!wholeWarp(warp, mask))
    return;
  if (warp.clusterState != Warp::ClusterState::None)
    return warp.fail(FindingKind::Deadlock, "the warp arrives at the barrier of the cluster again before it waits");
  ClusterBarrier &barrier = warp.block.clusterBarrier;
  if (op.numbers[0])
    warp.release(barrier.known, mask);
  barrier.arrived |= uint32_t(1) << warp.id;
  warp.clusterState = Warp::ClusterState::Arrived;
  warp.block.completeClusterBarrier();
}

void waitForCluster(Warp &warp, const Op &, uint32_t mask) {
  if (!wholeWarp(warp, mask))
    return;
  ClusterBarrier &barrier = warp.block.clusterBarrier;
  switch (warp.clusterState) {
  case Warp::ClusterState::None:
    return warp.fail(FindingKind::BadOperand, "the warp has not arrived at the barrier of the cluster");
  case Warp::ClusterState::Arrived:
    barrier.waiting |= uint32_t(1) << warp.id;
    warp.state = Warp::State::Waiting;
    return;
  case Warp::ClusterState::Completed:
    warp.known.join(barrier.completed);
    warp.clusterState = Warp::ClusterState::None;
  }
}

bool decodeClusterBarrier(Decoder &d) {
  int kind = d.takeOneOf({"arrive", "wait"});
  if (kind < 0)
    return d.fail("expected .arrive or .wait");
  d.op.numbers[0] = kind == 1 || !d.take("relaxed");
  d.take(kind == 0 ? "release" : "acquire");
  d.take("aligned");
  return d.expectOperands(0) && d.emit(kind == 0 ? arriveAtCluster : waitForCluster);
}

bool decodeBarrier(Decoder &d) {
  if (d.take("cluster"))
    return decodeClusterBarrier(d);
  if (d.take("warp")) {
    if (!d.take("sync") || !d.expectOperands(1))
      return d.fail("expected .sync");
    d.input(d.at(0), Type::B32);
    d.op.tracksUndefined = true;
    return d.emit(synchroniseWarp);
  }
  d.take("cta");
  int kind = d.takeOneOf({"sync", "arrive", "red"});
  if (kind < 0)
    return d.fail("only .sync, .arrive and .red are simulated");
  bool reduces = kind == 2;
  int reduction = reduces ? d.takeOneOf({"popc", "and", "or"}) : -1;
  if (reduces && reduction < 0)
    return d.fail("expected .popc, .and or .or");
  // Lanes that arrive one by one, which is legal without .aligned, are reported as a divergence.
  d.take("aligned");
  unsigned first = reduces ? 1 : 0;
  if (reduces) {
    Type type = d.type();
    if ((type == Type::U32) != (reduction == 0))
      return d.fail("expected .popc.u32, .and.pred or .or.pred");
    if (!d.expectOperands(3, 4))
      return false;
    d.result(d.at(0), type);
  } else if (!d.expectOperands(kind == 1 ? 2 : 1, 2)) {
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
