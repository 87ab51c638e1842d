//===- Knowledge.h - Which accesses happened before -----------------*- C++ -*-===//
//
// Vector clocks of warps and of asynchronous agents: operations that run beside the warps and complete at a barrier in
// shared memory (bulk copies), at a wait of their warpgroup (wgmma) or at a wait of their thread (bulk stores).
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_PTXSIM_KNOWLEDGE_H
#define SACCADE_LIB_PTXSIM_KNOWLEDGE_H

#include <algorithm>
#include <cstdint>
#include <vector>

namespace saccade::ptxsim {

/// Accesses of one lane with an earlier clock happened before.
struct LaneClock {
  uint32_t warp, lane, clock;
};

/// What a warp, or a barrier that warps arrived at, knows of the other agents.
struct Knowledge {
  std::vector<uint32_t> clocks; ///< per agent, warps first: accesses with an earlier clock happened before
  std::vector<uint32_t> fenced; ///< likewise, and a later `fence.proxy.async` orders them before the async proxy
  std::vector<LaneClock> lanes; ///< of lanes that released alone

  bool knows(uint32_t agent, uint32_t clock) const { return agent < clocks.size() && clock < clocks[agent]; }
  [[gnu::noinline]] bool knowsLane(uint32_t warp, uint32_t lane, uint32_t clock) const {
    for (const LaneClock &one : lanes)
      if (one.warp == warp && one.lane == lane && clock < one.clock)
        return true;
    return false;
  }
  void learn(uint32_t agent, uint32_t clock) {
    if (clocks.size() <= agent)
      clocks.resize(agent + 1);
    clocks[agent] = std::max(clocks[agent], clock);
  }
  void learnLane(const LaneClock &learned) {
    if (knows(learned.warp, learned.clock - 1))
      return;
    for (LaneClock &one : lanes)
      if (one.warp == learned.warp && one.lane == learned.lane) {
        one.clock = std::max(one.clock, learned.clock);
        return;
      }
    lanes.push_back(learned);
  }
  void join(const Knowledge &other) {
    joinClocks(clocks, other.clocks);
    joinClocks(fenced, other.fenced);
    for (const LaneClock &one : other.lanes)
      learnLane(one);
  }
  /// `fence.proxy.async`: everything that is known is ordered before later accesses of the async proxy.
  void fence() { joinClocks(fenced, clocks); }

private:
  static void joinClocks(std::vector<uint32_t> &to, const std::vector<uint32_t> &from) {
    if (to.size() < from.size())
      to.resize(from.size());
    for (size_t agent = 0; agent < from.size(); ++agent)
      to[agent] = std::max(to[agent], from[agent]);
  }
};

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_KNOWLEDGE_H
