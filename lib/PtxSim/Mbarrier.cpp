//===- Mbarrier.cpp - mbarrier --------------------------------------------===//
//
// A wait that is not successful returns false at once and ends the warp's turn, as a try_wait whose time limit has
// passed. So kernels without a loop around it are wrong here, and loops need no special treatment.
//
//===----------------------------------------------------------------------===//

#include "Mbarrier.h"
#include "Block.h"
#include "MemoryDecode.h"

using namespace saccade::ptxsim;

std::string Mbarrier::describe() const {
  return "phase " + std::to_string(phase) + ", " + std::to_string(pending) + " of " + std::to_string(expected) +
         " arrivals and " + std::to_string(bytes) + " bytes pending";
}

void saccade::ptxsim::settle(Warp &warp, Mbarrier &barrier) {
  ++warp.block.events;
  if (barrier.pending)
    return;
  if (barrier.bytes < 0)
    return warp.fail(FindingKind::BadOperand,
                     llvm::Twine(-barrier.bytes) + " bytes more arrived at the mbarrier than the phase expects");
  if (barrier.bytes)
    return;
  ++barrier.phase, ++barrier.clock;
  barrier.pending = barrier.expected;
  barrier.isObserved = false;
  barrier.completed.join(barrier.arrived);
  barrier.completed.learn(barrier.agent, barrier.clock);
  barrier.arrived = {};
}

void saccade::ptxsim::addBytes(Warp &warp, Mbarrier &barrier, int64_t bytes) {
  barrier.bytes += bytes;
  if (barrier.bytes > Mbarrier::maxCount || barrier.bytes < -int64_t(Mbarrier::maxCount))
    warp.fail(FindingKind::BadOperand, "the pending bytes of the mbarrier leave their range: " + barrier.describe());
}

Mbarrier *saccade::ptxsim::usableBarrier(Warp &warp, uint32_t offset, unsigned lane, bool byCopy) {
  auto found = warp.block.mbarriers.find(offset);
  if (found == warp.block.mbarriers.end() || !found->second.isLive) {
    warp.fail(FindingKind::Uninitialised, "there is no initialised mbarrier at this address", lane);
    return nullptr;
  }
  Mbarrier &barrier = found->second;
  const LaneClock &initialiser = barrier.initialiser;
  bool isOwn = initialiser.warp == warp.id && initialiser.lane == lane && !byCopy;
  if (!isOwn && !(barrier.visibleTo >> warp.id & 1)) {
    if (warp.block.launch.checkRaces &&
        !warp.knowsFence(initialiser.warp, initialiser.lane, initialiser.clock, Warp::initFence)) {
      warp.fail(FindingKind::Race,
                "the initialisation of the mbarrier is not followed by fence.mbarrier_init or fence.proxy.async and a "
                "barrier",
                lane);
      return nullptr;
    }
    barrier.visibleTo |= uint32_t(1) << warp.id;
  }
  return &barrier;
}

namespace {

enum Kind : uint32_t { initialise, invalidate, arriveOn, expectBytes, completeBytes };
constexpr uint32_t withBytes = 1, dropping = 2, releasing = 4, byParity = 8;

/// Offsets in shared memory of the barrier of each lane. Numbers: space, kind, flags.
bool resolveBarriers(Warp &warp, const Op &op, uint32_t mask, Access access, uint32_t offsets[32]) {
  uint64_t addresses[32];
  Place places[32];
  if (!warp.requireDefined(op.input(0), mask, "the address"))
    return false;
  laneAddresses(warp, op, op.input(0), mask, addresses);
  Request request{Space(op.numbers[0]), 8, 8, access};
  request.toMbarrier = true;
  if (!warp.resolve(request, addresses, mask, places))
    return false;
  bool good = true;
  forLanes(mask, [&](unsigned lane) {
    ptrdiff_t offset = places[lane].bytes - warp.block.shared.data();
    good &= offset >= 0 && size_t(offset) < warp.block.shared.size();
    offsets[lane] = uint32_t(offset);
  });
  if (!good)
    warp.fail(FindingKind::BadOperand, "the mbarrier is not in shared memory");
  return good;
}

bool inRange(Warp &warp, uint32_t value, uint32_t least, const char *what, unsigned lane) {
  if (value >= least && value <= Mbarrier::maxCount)
    return true;
  warp.fail(FindingKind::BadOperand,
            llvm::Twine("found ") + what + " of " + llvm::Twine(value) + ", expected " + llvm::Twine(least) + " to " +
                llvm::Twine(Mbarrier::maxCount),
            lane);
  return false;
}

void initialiseBarrier(Warp &warp, const Op &op, uint32_t mask) {
  uint32_t offsets[32];
  bool begins = op.numbers[1] == initialise;
  if ((begins && !warp.requireDefined(op.input(1), mask, "the count")) ||
      !resolveBarriers(warp, op, mask, Access::Write, offsets))
    return;
  Block &block = warp.block;
  forLanes(mask, [&](unsigned lane) {
    Mbarrier &barrier = block.mbarriers[offsets[lane]];
    if (barrier.isLive == begins)
      return warp.fail(FindingKind::BadOperand,
                       begins ? "the mbarrier is initialised already" : "there is no initialised mbarrier", lane);
    block.asyncShadow.markMbarrier(offsets[lane], begins);
    if (!begins) {
      barrier.isLive = false;
      return;
    }
    uint32_t count = warp.row<uint32_t>(op.input(1))[lane];
    if (!inRange(warp, count, 1, "a count", lane))
      return;
    if (!barrier.agent)
      barrier.agent = block.asyncShadow.addAgent("copy");
    Mbarrier fresh;
    fresh.expected = fresh.pending = count;
    fresh.agent = barrier.agent, fresh.clock = barrier.clock;
    fresh.isLive = true;
    fresh.initialiser = {warp.id, lane, warp.now};
    fresh.polled.resize(block.numWarps);
    barrier = std::move(fresh);
  });
}

/// Arrivals and byte counts. Inputs: address, optional count or bytes.
void arriveAtBarrier(Warp &warp, const Op &op, uint32_t mask) {
  uint32_t offsets[32];
  if ((op.inputs > 1 && !warp.requireDefined(op.input(1), mask, "the count")) ||
      !resolveBarriers(warp, op, mask, Access::AtomicRead, offsets))
    return;
  uint32_t kind = op.numbers[1], flags = op.numbers[2];
  const uint32_t *operand = op.inputs > 1 ? warp.row<uint32_t>(op.input(1)) : nullptr;
  uint64_t states[32] = {};
  for (uint32_t todo = mask; todo && !warp.block.finding;) {
    uint32_t offset = offsets[__builtin_ctz(todo)], together = 0;
    forLanes(todo, [&](unsigned lane) { together |= uint32_t(offsets[lane] == offset) << lane; });
    todo &= ~together;
    // The release of all lanes comes first, so that it is part of the phase that the last arrival completes.
    Knowledge known;
    if (kind == arriveOn && (flags & releasing))
      warp.release(known, together);
    forLanes(together, [&](unsigned lane) {
      if (warp.block.finding)
        return;
      Mbarrier *barrier = usableBarrier(warp, offset, lane, /*byCopy=*/false);
      if (!barrier)
        return;
      states[lane] = barrier->phase;
      bool counts = operand && !(flags & withBytes) && kind == arriveOn;
      uint32_t count = counts ? operand[lane] : 1;
      if (operand && !counts) {
        if (!inRange(warp, operand[lane], 0, "a number of bytes", lane))
          return;
        addBytes(warp, *barrier, kind == completeBytes ? -int64_t(operand[lane]) : int64_t(operand[lane]));
      }
      if (kind == arriveOn) {
        if (!inRange(warp, count, 1, "a count", lane))
          return;
        if (count > barrier->pending)
          return warp.fail(FindingKind::BadOperand, "more arrivals than the phase expects: " + barrier->describe(),
                           lane);
        if (!barrier->isObserved)
          return warp.fail(FindingKind::Race, "arrival at the next phase before any thread has waited for the last one",
                           lane);
        barrier->arrived.join(known);
        barrier->pending -= count;
        if (flags & dropping)
          barrier->expected -= count;
      }
      settle(warp, *barrier);
    });
  }
  if (op.results) {
    forLanes(mask, [&](unsigned lane) { warp.row<uint64_t>(op.result(0))[lane] = states[lane]; });
    warp.setUndefined(op.result(0), 0, mask);
  }
}

/// cp.async.mbarrier.arrive: an arrival when the copies of the thread are complete, which is now. numbers[3]: the count
/// of the phase does not include it.
void arriveAfterCopies(Warp &warp, const Op &op, uint32_t mask) {
  warp.completeCopies(mask, ~uint32_t(0));
  uint32_t offsets[32];
  if (op.numbers[3] && !resolveBarriers(warp, op, mask, Access::AtomicRead, offsets))
    return;
  if (op.numbers[3])
    forLanes(mask, [&](unsigned lane) {
      if (Mbarrier *barrier = warp.block.finding ? nullptr : usableBarrier(warp, offsets[lane], lane, /*byCopy=*/false))
        ++barrier->pending;
    });
  if (!warp.block.finding)
    arriveAtBarrier(warp, op, mask);
}

/// Whether the phase that a lane waits for is complete; reports a finding if it can be neither the current nor the last
/// phase.
bool isComplete(Warp &warp, const Op &op, const Mbarrier &barrier, unsigned lane) {
  if (op.numbers[2] & byParity) {
    uint32_t parity = warp.row<uint32_t>(op.input(1))[lane];
    if (parity > 1)
      warp.fail(FindingKind::BadOperand, "found a parity of " + llvm::Twine(parity) + ", expected 0 or 1", lane);
    return barrier.isComplete(parity);
  }
  uint64_t state = warp.row<uint64_t>(op.input(1))[lane];
  if (state > barrier.phase || barrier.phase - state > 1)
    warp.fail(FindingKind::BadOperand, "the state is not that of the current or the last phase", lane);
  return state != barrier.phase;
}

/// Lanes that wait for the same barrier. Returns those whose wait is successful.
uint32_t waitTogether(Warp &warp, const Op &op, uint32_t offset, uint32_t together) {
  Mbarrier *barrier = nullptr;
  uint32_t complete = 0;
  forLanes(together, [&](unsigned lane) {
    barrier = warp.block.finding ? nullptr : usableBarrier(warp, offset, lane, /*byCopy=*/false);
    if (barrier)
      complete |= uint32_t(isComplete(warp, op, *barrier, lane)) << lane;
  });
  if (warp.block.finding)
    return 0;
  uint64_t &polled = barrier->polled[warp.id];
  if (polled && barrier->phase > polled) {
    warp.fail(FindingKind::Race, "the phase that the warp waits for is two phases back: " + barrier->describe(),
              __builtin_ctz(together));
    return 0;
  }
  if (!complete) {
    polled = barrier->phase + 1;
    return 0;
  }
  // The warp cannot know whether a phase is complete that no earlier wait has told it of, so its first wait may come
  // before the completion.
  if (barrier->phase && polled != barrier->phase && !warp.known.knows(barrier->agent, barrier->clock - 1)) {
    polled = barrier->phase;
    ++warp.block.events;
    return 0;
  }
  polled = 0;
  if (barrier->phase && (!barrier->isObserved || barrier->unobserved))
    ++warp.block.events;
  barrier->isObserved = true;
  barrier->unobserved = nullptr;
  warp.known.join(barrier->completed);
  return complete;
}

/// test_wait and try_wait. Inputs: address, parity or state.
void waitAtBarrier(Warp &warp, const Op &op, uint32_t mask) {
  uint32_t offsets[32], complete = 0;
  if (!warp.requireDefined(op.input(1), mask, "the phase") ||
      !resolveBarriers(warp, op, mask, Access::AtomicRead, offsets))
    return;
  for (uint32_t todo = mask; todo && !warp.block.finding;) {
    uint32_t offset = offsets[__builtin_ctz(todo)], together = 0;
    forLanes(todo, [&](unsigned lane) { together |= uint32_t(offsets[lane] == offset) << lane; });
    todo &= ~together;
    complete |= waitTogether(warp, op, offset, together);
  }
  warp.setPredicate(op.result(0), complete, mask);
  warp.setUndefined(op.result(0), 0, mask);
  if (complete != mask) {
    warp.state = Warp::State::Polling;
    warp.polled = offsets[__builtin_ctz(mask & ~complete)];
  }
}

bool decodeWait(Decoder &d) {
  d.op.numbers[2] = d.take("parity") ? byParity : 0;
  d.take("acquire");
  d.takeOneOf({"cta", "cluster"});
  d.op.numbers[0] = uint32_t(takeSpace(d).value_or(Space::Generic));
  // The optional fourth operand is a time limit.
  if (d.type() != Type::B64 || !d.expectOperands(3, 4))
    return d.fail("expected .b64");
  d.result(d.at(0), Type::Pred);
  d.address(d.at(1), Space(d.op.numbers[0]));
  d.input(d.at(2), d.op.numbers[2] ? Type::U32 : Type::B64);
  d.op.tracksUndefined = true;
  return d.emit(waitAtBarrier);
}

bool decodeMbarrier(Decoder &d) {
  d.builder.kernel.usesAsync = true;
  if (int wait = d.takeOneOf({"test_wait", "try_wait"}); wait >= 0)
    return wait && d.architecture() < 90 ? d.fail("expected target sm_90 or higher") : decodeWait(d);
  int what = d.takeOneOf({"init", "inval", "arrive", "expect_tx", "complete_tx", "arrive_drop"});
  if (what < 0)
    return d.fail("this operation is not simulated");
  uint32_t kind = what == 5 ? uint32_t(arriveOn) : uint32_t(what), flags = what == 5 ? dropping : 0;
  if (kind == arriveOn) {
    flags |= d.take("expect_tx") ? withBytes : 0;
    d.take("release");
    flags |= d.take("relaxed") ? 0 : releasing;
  } else if (kind == expectBytes || kind == completeBytes) {
    d.take("relaxed");
  }
  if (((flags & withBytes) || kind == expectBytes || kind == completeBytes) && d.architecture() < 90)
    return d.fail("expected target sm_90 or higher");
  d.takeOneOf({"cta", "cluster"});
  d.op.numbers[0] = uint32_t(takeSpace(d).value_or(Space::Generic));
  if (d.type() != Type::B64)
    return d.fail("expected .b64");
  d.op.numbers[1] = kind, d.op.numbers[2] = flags;
  unsigned first = kind == arriveOn ? 1 : 0, needed = kind == arriveOn || kind == invalidate ? 0 : 1;
  if (!d.expectOperands(first + 1 + std::max(needed, unsigned(flags & withBytes)),
                        first + 1 + (kind == arriveOn ? 1 : needed)))
    return false;
  if (first)
    d.result(d.at(0), Type::B64);
  d.address(d.at(first), Space(d.op.numbers[0]));
  if (d.count() > first + 1)
    d.input(d.at(first + 1), Type::U32);
  d.op.tracksUndefined = true;
  return d.emit(kind == initialise || kind == invalidate ? initialiseBarrier : arriveAtBarrier);
}

/// numbers[0]: the kinds of fence.
void fenceProxy(Warp &warp, const Op &op, uint32_t mask) { warp.fence(uint8_t(op.numbers[0]), mask); }

} // namespace

bool saccade::ptxsim::decodeCopyArrival(Decoder &d) {
  d.builder.kernel.usesAsync = true;
  if (!d.take("arrive"))
    return d.fail("expected .arrive");
  d.op.numbers[3] = !d.take("noinc");
  d.op.numbers[0] = uint32_t(takeSpace(d).value_or(Space::Generic));
  if (d.type() != Type::B64 || !d.expectOperands(1))
    return d.fail("expected .b64 and an address");
  d.op.numbers[1] = arriveOn, d.op.numbers[2] = releasing;
  d.address(d.at(0), Space(d.op.numbers[0]));
  d.op.tracksUndefined = true;
  return d.emit(arriveAfterCopies);
}

bool saccade::ptxsim::decodeOrderingFence(Decoder &d, bool ofProxy) {
  if (!ofProxy) {
    d.op.numbers[0] = Warp::initFence;
    if (!d.take("release") || !d.take("cluster"))
      return d.fail("expected .release.cluster");
  } else {
    if (!d.take("async"))
      return d.fail("only the async proxy is simulated");
    // A fence for global memory alone does not order accesses of shared memory.
    bool global = d.take("global");
    if (!global)
      d.takeOneOf({"shared::cta", "shared::cluster"});
    d.op.numbers[0] = global ? 0 : Warp::proxyFence | Warp::initFence;
  }
  return d.expectOperands(0) && d.emit(fenceProxy);
}

void saccade::ptxsim::addMbarrierInstructions(InstructionTable &table) {
  table.add("mbarrier", TypeClass::Any, decodeMbarrier);
}
