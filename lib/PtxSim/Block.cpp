//===- Block.cpp - Schedules the warps of a block -------------------------===//

#include "Block.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>

using namespace saccade::ptxsim;

/// Instructions that a warp executes before the next one is scheduled. The bound lets a warp that spins on a write of
/// another warp make progress.
static constexpr uint64_t timeSlice = 20000;

Block::Block(const Code &code, const Kernel &kernel, const Launch &launch, GlobalShadow *globalShadow)
    : code(code), kernel(kernel), launch(launch), globalShadow(globalShadow),
      threads(launch.block[0] * launch.block[1] * launch.block[2]), numWarps((threads + 31) / 32),
      parameters(launch.parameters), parameterStates(parameters.size(), ByteState::Defined), counts(kernel.ops.size()) {
  for (unsigned warp = 0; warp < numWarps; ++warp)
    warps.push_back(std::make_unique<Warp>(*this, warp));
}

void Block::run(const std::array<uint32_t, 3> &where) {
  index = where;
  number = where[0] + launch.grid[0] * (where[1] + launch.grid[1] * where[2]);
  finding.reset();
  size_t bytes = kernel.staticShared + launch.dynamicShared;
  shared.assign(bytes, 0);
  sharedStates.assign(bytes, ByteState::Undefined);
  if (launch.checkRaces)
    shadow.reset(bytes);
  if (kernel.usesAsync) {
    asyncShadow.reset(bytes, numWarps);
    mbarriers.clear();
    copies = {};
    warpgroups.assign((numWarps + Warpgroup::size - 1) / Warpgroup::size, {});
    freeRegisters = 0;
  }
  barriers.fill(Barrier());
  clusterBarrier = {};
  for (auto &warp : warps) {
    uint32_t lanes = std::min<uint32_t>(32, threads - warp->id * 32);
    warp->start(lanes == 32 ? ~uint32_t(0) : (uint32_t(1) << lanes) - 1);
  }
  runWarps();
  if (!finding)
    checkEnd();
}

void Block::runWarps() {
  // PTX does not specify the order of warps; the two copy modes use opposite orders.
  bool reversed = launch.async == AsyncMode::Late;
  // Rounds without an event in which all warps wait or poll. A warp may poll several barriers in a loop.
  constexpr unsigned beforeCopies = 2, beforeDeadlock = 64;
  unsigned idleRounds = 0;
  while (true) {
    bool progressed = false, polls = false, done = true;
    for (unsigned step = 0; step < numWarps; ++step) {
      Warp &warp = *warps[reversed ? numWarps - 1 - step : step];
      if (warp.state == Warp::State::Ready || warp.state == Warp::State::Polling) {
        uint64_t before = events;
        warp.state = Warp::State::Ready;
        warp.run(timeSlice);
        if (finding)
          return;
        if (warp.executed > launch.maxInstructions)
          return warp.fail(FindingKind::InstructionLimit,
                           "the warp has not exited after " + llvm::Twine(warp.executed) + " instructions");
        polls |= warp.state == Warp::State::Polling;
        progressed |= warp.state != Warp::State::Polling || events != before;
      }
      done &= warp.state == Warp::State::Done;
    }
    if (done)
      return;
    idleRounds = progressed ? 0 : idleRounds + 1;
    if (idleRounds && (idleRounds >= beforeCopies || !polls) && copies.completeOne())
      idleRounds = 0;
    else if (idleRounds && (idleRounds >= beforeDeadlock || !polls))
      return reportDeadlock();
    if (finding)
      return;
  }
}

void Block::checkEnd() {
  while (!finding && copies.completeOne())
    ;
  for (auto &[offset, barrier] : mbarriers)
    if (barrier.unobserved && !finding) {
      warps[0]->current = barrier.unobserved;
      warps[0]->fail(FindingKind::Unwaited, "the block ends and no thread has waited for the copy");
    }
}

uint32_t Block::launchRegisters() const {
  constexpr uint32_t ofMultiprocessor = 65536;
  uint32_t most = kernel.entry->maxRegisters ? kernel.entry->maxRegisters / 8 * 8 : 256;
  return std::min(most, ofMultiprocessor / (numWarps * 32 * kernel.entry->minBlocks) / 8 * 8);
}

namespace {

/// Warps that wait for the same in the same way.
struct Waiting {
  std::string how; ///< follows "waits" or "wait"
  std::vector<unsigned> warps;
};

} // namespace

/// " warp 4" or " warps 4, 5, 6".
static std::string nameWarps(llvm::ArrayRef<unsigned> warps) {
  std::string text = warps.size() == 1 ? " warp " : " warps ";
  llvm::raw_string_ostream os(text);
  llvm::interleaveComma(warps, os);
  return text;
}

void Block::reportDeadlock() {
  std::string text = "no warp can make progress:";
  Warp *first = nullptr;
  auto add = [](std::vector<Waiting> &groups, unsigned warp, std::string how) {
    auto same = llvm::find_if(groups, [&](const Waiting &group) { return group.how == how; });
    if (same == groups.end())
      same = groups.insert(groups.end(), {std::move(how), {}});
    same->warps.push_back(warp);
  };
  auto lineOf = [](unsigned line) { return " (line " + std::to_string(line) + ")"; };
  for (unsigned number = 0; number < barriers.size(); ++number) {
    const Barrier &barrier = barriers[number];
    if (!barrier.waiting)
      continue;
    text += " at barrier " + std::to_string(number);
    std::vector<Waiting> groups;
    for (auto &warp : warps)
      if (barrier.waiting >> warp->id & 1) {
        add(groups, warp->id, lineOf(warp->current->line));
        first = first ? first : warp.get();
      }
    for (const Waiting &group : groups)
      text += nameWarps(group.warps) + group.how;
    text += " waiting, " + std::to_string(__builtin_popcount(barrier.arrived) * 32) + " of " +
            (barrier.expected ? std::to_string(barrier.expected) : std::string("all")) + " threads arrived;";
  }
  forLanes(clusterBarrier.waiting, [&](unsigned warp) {
    text += " warp " + std::to_string(warp) + " (line " + std::to_string(warps[warp]->current->line) +
            ") waits for the cluster;";
    first = first ? first : warps[warp].get();
  });
  std::vector<Waiting> polling;
  for (auto &warp : warps)
    if (warp->state == Warp::State::Polling) {
      add(polling, warp->id,
          " for the mbarrier at 0x" + llvm::utohexstr(warp->polled + sharedStart, /*LowerCase=*/true) + " (" +
              mbarriers[warp->polled].describe() + ");");
      first = first ? first : warp.get();
    }
  for (const Waiting &group : polling) {
    // Loops that wait for one mbarrier may be in several lines.
    std::vector<Waiting> lines;
    for (unsigned warp : group.warps)
      add(lines, warp, lineOf(warps[warp]->current->line));
    for (const Waiting &each : lines)
      text += (&each == lines.data() ? "" : " and") + nameWarps(each.warps) + each.how;
    text += (group.warps.size() == 1 ? " waits" : " wait") + group.how;
  }
  for (Warpgroup &group : warpgroups)
    forLanes(group.arrived, [&](unsigned warp) {
      text += " warp " + std::to_string(warp) + " (line " + std::to_string(group.op->line) +
              ") waits for its warpgroup" +
              (group.op->numbers[1] && __builtin_popcount(group.arrived) == 4 ? " to get registers;" : ";");
      first = first ? first : warps[warp].get();
    });
  text.pop_back();
  first->fail(FindingKind::Deadlock, text);
}

uint32_t Block::liveWarps() const {
  uint32_t live = 0;
  for (auto &warp : warps)
    if (warp->state != Warp::State::Done)
      live |= uint32_t(1) << warp->id;
  return live;
}

void Block::completeClusterBarrier() {
  ClusterBarrier &barrier = clusterBarrier;
  if (!barrier.arrived || (liveWarps() & ~barrier.arrived))
    return;
  forLanes(barrier.arrived, [&](unsigned warp) { warps[warp]->clusterState = Warp::ClusterState::Completed; });
  forLanes(barrier.waiting, [&](unsigned warp) {
    warps[warp]->known.join(barrier.known);
    warps[warp]->clusterState = Warp::ClusterState::None;
    warps[warp]->state = Warp::State::Ready;
  });
  barrier = {0, 0, {}, std::move(barrier.known)};
  ++events;
}

bool Block::complete(Barrier &barrier) {
  uint32_t live = liveWarps();
  bool all = barrier.expected ? __builtin_popcount(barrier.arrived) * 32u >= barrier.expected
                              : barrier.arrived && (live & ~barrier.arrived) == 0;
  if (!all)
    return false;
  for (auto &warp : warps) {
    if (!(barrier.waiting >> warp->id & 1))
      continue;
    warp->known.join(barrier.known);
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
  std::vector<uint32_t> arrivals(numWarps);
  forLanes(barrier.arrived, [&](unsigned warp) { arrivals[warp] = barrier.known.clocks[warp]; });
  barrier = Barrier();
  barrier.before = std::move(arrivals);
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
  // Otherwise the warp could have arrived before the barrier completed last, in place of another warp.
  for (unsigned other = 0; other < barrier.before.size(); ++other)
    if (other != warp.id && barrier.before[other] && !warp.known.knows(other, barrier.before[other] - 1))
      return warp.fail(FindingKind::Race, "the arrival at barrier " + llvm::Twine(number) +
                                              " is not ordered after the last one of warp " + llvm::Twine(other));
  barrier.expected = expected;
  barrier.arrived |= bit;
  warp.release(barrier.known, warp.live());
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
  completeClusterBarrier();
}
