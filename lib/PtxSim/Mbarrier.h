//===- Mbarrier.h - Barriers in shared memory -----------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_MBARRIER_H
#define SACCADE_LIB_PTXSIM_MBARRIER_H

#include "Knowledge.h"
#include "llvm/ADT/Twine.h"

namespace saccade::ptxsim {

class Warp;
struct Op;

/// State of an mbarrier object (PTX ISA, "mbarrier"). A phase completes when no arrival and no byte is pending.
struct Mbarrier {
  static constexpr uint32_t maxCount = (1 << 20) - 1; ///< of arrivals, and of bytes in either direction

  uint32_t expected = 0, pending = 0; ///< arrivals
  int64_t bytes = 0;                  ///< expected less arrived ones
  uint64_t phase = 0;                 ///< completed phases since the initialisation
  bool isLive = false;
  bool isObserved = true; ///< some wait was successful since the last phase completed
  LaneClock initialiser = {};
  uint32_t visibleTo = 0; ///< warps that were found to be ordered after the initialisation and its fence

  uint32_t agent = 0;             ///< of the copies that complete here
  uint32_t clock = 0;             ///< of that agent: completed phases, also before the last initialisation
  const Op *unobserved = nullptr; ///< a copy since the last successful wait
  Knowledge arrived, completed;   ///< of the arrivals of this phase; of all arrivals of completed phases
  std::vector<uint64_t> polled;   ///< per warp: 1 + the phase that it last waited for without success

  /// Whether the phase with this parity is the one that completed last.
  bool isComplete(uint32_t parity) const { return ((phase + 1) & 1) == (parity & 1); }
  std::string describe() const;
};

/// Completes the phase of a barrier if nothing is pending. Reports a finding for `warp` on an error.
void settle(Warp &warp, Mbarrier &barrier);
/// Adds expected (negative: arrived) bytes, without completing the phase.
void addBytes(Warp &warp, Mbarrier &barrier, int64_t bytes);
/// The barrier at an offset of shared memory for use by a lane; `byCopy` if a bulk copy will complete there. Reports a
/// finding and returns null if it is not initialised, or not visibly so to the lane.
Mbarrier *usableBarrier(Warp &warp, uint32_t offset, unsigned lane, bool byCopy);

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_MBARRIER_H
