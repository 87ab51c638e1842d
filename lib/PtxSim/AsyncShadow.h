//===- AsyncShadow.h - Accesses of shared memory by asynchronous units -*- C++ -*-===//
//
// Bulk copies and wgmma access whole multiples of 16 bytes. Their accesses are kept per 16 bytes, beside those of
// threads in `SharedShadow`; every access is checked against both. An agent's clock counts the phases of the mbarrier,
// the groups of wgmma or the bulk groups that its operations complete with, so knowing a clock means knowing that all
// operations before it are complete.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_PTXSIM_ASYNCSHADOW_H
#define SACCADE_LIB_PTXSIM_ASYNCSHADOW_H

#include "SharedShadow.h"
#include "llvm/ADT/SmallVector.h"

namespace saccade::ptxsim {

/// An operation of an agent: it is complete for those who know a later clock of the agent.
struct AsyncOperation {
  uint32_t agent, clock, line;
};

class AsyncShadow {
public:
  static constexpr uint32_t unit = 16; ///< bytes

  void reset(uint32_t bytes, uint32_t numWarps);
  /// Adds an agent; `what` describes its operations in messages: "wgmma".
  uint32_t addAgent(const char *what);

  /// Checks an access of threads. Returns the first lane with a conflict, described in `conflict`, or 32. An access of
  /// a live mbarrier other than by its own instructions is a conflict.
  unsigned access(const ClockView &clockView, uint32_t mask, const uint32_t offsets[32], uint32_t size, bool isWrite,
                  bool toMbarrier);
  /// Checks an access of 16 bytes by an asynchronous operation whose issuer knows `known`.
  bool check(const Knowledge &known, uint32_t offset, bool isWrite);
  void recordWrite(uint32_t offset, const AsyncOperation &operation);
  void recordRead(uint32_t offset, const AsyncOperation &operation);
  /// Marks 8 bytes as an mbarrier or no longer one.
  void markMbarrier(uint32_t offset, bool isLive);

  std::string conflict;

private:
  struct Unit {
    AsyncOperation writer = {0, 0, 0};            ///< agent 0, a warp: none
    llvm::SmallVector<AsyncOperation, 3> readers; ///< since the last asynchronous write, one per agent
    uint8_t mbarriers = 0;                        ///< per half
    bool isUsed = false;
  };
  bool conflictsWith(const Unit &one, const Knowledge &known, bool isWrite);

  std::vector<Unit> units;
  std::vector<const char *> agents;
  uint32_t firstAgent = 0;
};

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_ASYNCSHADOW_H
