//===- Block.cpp - Schedules the warps of a block -------------------------===//

#include "Block.h"
#include <algorithm>

using namespace saccade::ptxsim;

/// Instructions that a warp executes before the next one is scheduled. The bound lets a warp that spins on a write of
/// another warp make progress.
static constexpr uint64_t timeSlice = 20000;

Block::Block(const Code &code, const Kernel &kernel, const Launch &launch)
    : code(code), kernel(kernel), launch(launch), threads(launch.block[0] * launch.block[1] * launch.block[2]),
      numWarps((threads + 31) / 32), parameters(launch.parameters),
      parameterStates(parameters.size(), ByteState::Defined), counts(kernel.ops.size()) {
  for (unsigned warp = 0; warp < numWarps; ++warp)
    warps.push_back(std::make_unique<Warp>(*this, warp));
}

void Block::run(const std::array<uint32_t, 3> &where) {
  index = where;
  finding.reset();
  size_t bytes = kernel.staticShared + launch.dynamicShared;
  shared.assign(bytes, 0);
  sharedStates.assign(bytes, ByteState::Undefined);
  if (launch.checkRaces)
    shadow.reset(bytes);
  barriers.fill(Barrier());
  for (auto &warp : warps) {
    uint32_t lanes = std::min<uint32_t>(32, threads - warp->id * 32);
    warp->start(lanes == 32 ? ~uint32_t(0) : (uint32_t(1) << lanes) - 1);
  }
  // PTX does not specify the order of warps; the two copy modes use opposite orders.
  bool reversed = launch.async == AsyncMode::Late;
  while (true) {
    bool ran = false, done = true;
    for (unsigned step = 0; step < numWarps; ++step) {
      Warp &warp = *warps[reversed ? numWarps - 1 - step : step];
      if (warp.state == Warp::State::Ready) {
        warp.run(timeSlice);
        if (finding)
          return;
        if (warp.executed > launch.maxInstructions)
          return warp.fail(FindingKind::InstructionLimit,
                           "the warp has not exited after " + llvm::Twine(warp.executed) + " instructions");
        ran = true;
      }
      done &= warp.state == Warp::State::Done;
    }
    if (done)
      return;
    if (!ran)
      return reportDeadlock();
  }
}

void Block::reportDeadlock() {
  std::string text = "no warp can make progress:";
  Warp *first = nullptr;
  for (unsigned number = 0; number < barriers.size(); ++number) {
    const Barrier &barrier = barriers[number];
    if (!barrier.waiting)
      continue;
    text += " at barrier " + std::to_string(number);
    for (auto &warp : warps)
      if (barrier.waiting >> warp->id & 1) {
        text += " warp " + std::to_string(warp->id) + " (line " + std::to_string(warp->current->line) + ")";
        first = first ? first : warp.get();
      }
    text += " waiting, " + std::to_string(__builtin_popcount(barrier.arrived) * 32) + " of " +
            (barrier.expected ? std::to_string(barrier.expected) : std::string("all")) + " threads arrived;";
  }
  text.pop_back();
  first->fail(FindingKind::Deadlock, text);
}

bool Block::complete(Barrier &barrier) {
  uint32_t live = 0;
  for (auto &warp : warps)
    if (warp->state != Warp::State::Done)
      live |= uint32_t(1) << warp->id;
  bool all = barrier.expected ? __builtin_popcount(barrier.arrived) * 32u >= barrier.expected
                              : barrier.arrived && (live & ~barrier.arrived) == 0;
  if (!all)
    return false;
  for (auto &warp : warps) {
    if (!(barrier.waiting >> warp->id & 1))
      continue;
    for (unsigned other = 0; other < numWarps; ++other)
      warp->clocks[other] = std::max(warp->clocks[other], barrier.clocks[other]);
    warp->state = Warp::State::Ready;
    auto &reduction = warp->reduction;
    switch (BarrierReduction(reduction.kind)) {
    case BarrierReduction::None:
      break;
    case BarrierReduction::Count:
      forLanes(reduction.mask, [&](unsigned lane) { warp->row<uint32_t>(reduction.slot)[lane] = barrier.count; });
      break;
    case BarrierReduction::And:
      warp->setPredicate(reduction.slot, barrier.count == barrier.lanes ? ~0u : 0, reduction.mask);
      break;
    case BarrierReduction::Or:
      warp->setPredicate(reduction.slot, barrier.count ? ~0u : 0, reduction.mask);
      break;
    }
    reduction.kind = 0;
  }
  barrier = Barrier();
  return true;
}

void Block::arrive(Warp &warp, uint32_t number, uint32_t expected, bool waits) {
  if (number >= barriers.size())
    return warp.fail(FindingKind::BadOperand, "found barrier number " + llvm::Twine(number) + ", expected 0 to 15");
  if (expected % 32)
    return warp.fail(FindingKind::BadOperand,
                     "found a thread count of " + llvm::Twine(expected) + ", expected a positive multiple of 32");
  Barrier &barrier = barriers[number];
  uint32_t bit = uint32_t(1) << warp.id;
  if (barrier.arrived & bit)
    return warp.fail(FindingKind::Deadlock,
                     "the warp arrives at barrier " + llvm::Twine(number) + " again before it completes");
  if (barrier.arrived && barrier.expected != expected)
    return warp.fail(FindingKind::BadOperand, "found a thread count of " + llvm::Twine(expected) + " at barrier " +
                                                  llvm::Twine(number) + ", expected that of the other warps, " +
                                                  llvm::Twine(barrier.expected) + " (0: all)");
  barrier.expected = expected;
  barrier.arrived |= bit;
  barrier.clocks.resize(numWarps);
  warp.clocks[warp.id] = ++warp.now;
  for (unsigned other = 0; other < numWarps; ++other)
    barrier.clocks[other] = std::max(barrier.clocks[other], warp.clocks[other]);
  if (waits) {
    barrier.waiting |= bit;
    warp.state = Warp::State::Waiting;
  }
  complete(barrier);
}

void Block::warpEnded() {
  for (Barrier &barrier : barriers)
    if (barrier.arrived && !barrier.expected)
      complete(barrier);
}
