//===- Block.h - The state of a thread block ------------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_BLOCK_H
#define SACCADE_LIB_PTXSIM_BLOCK_H

#include "AsyncShadow.h"
#include "BulkCopy.h"
#include "GlobalShadow.h"
#include "Mbarrier.h"
#include "Warp.h"

namespace saccade::ptxsim {

/// Kinds of `bar.red`.
enum class BarrierReduction : uint8_t { None, Count, And, Or };

/// One of the 16 barriers of a block. Arrivals count warps.
struct Barrier {
  uint32_t arrived = 0, waiting = 0; ///< masks of warps
  uint32_t expected = 0;             ///< threads; 0: all that have not ended
  std::vector<uint32_t> before;      ///< per warp: its clock after its arrival in the last generation, or 0
  Knowledge known;                   ///< of the arrived warps
  uint32_t count = 0;                ///< lanes whose predicate was true
  uint32_t lanes = 0;                ///< lanes in the reduction
};

/// `barrier.cluster`, among the warps of one block.
struct ClusterBarrier {
  uint32_t arrived = 0, waiting = 0; ///< masks of warps
  Knowledge known, completed;        ///< of the arrivals of this generation, and of the last one
};

/// Executes blocks one after another, reusing their storage.
class Block {
public:
  /// `globalShadow` may be null.
  Block(const Code &code, const Kernel &kernel, const Launch &launch, GlobalShadow *globalShadow);

  /// Executes the block at `where` in the grid to its end or the first finding.
  void run(const std::array<uint32_t, 3> &where);

  /// A warp arrives at barrier `number` and optionally waits. `expected` is the number of threads; 0: all.
  void arrive(Warp &warp, uint32_t number, uint32_t expected, bool waits);
  /// Registers of a thread at the launch: what ptxas may use if it must fit the directives of the entry.
  uint32_t launchRegisters() const;
  /// Completes `barrier.cluster` if all warps have arrived that have not exited.
  void completeClusterBarrier();
  /// Called when a warp has exited: barriers that wait for all threads may be complete.
  void warpEnded();

  const Code &code;
  const Kernel &kernel;
  const Launch &launch;
  GlobalShadow *globalShadow;
  std::array<uint32_t, 3> index = {};
  uint32_t number = 0; ///< `index` in the order of blocks
  uint32_t threads, numWarps;
  std::vector<uint8_t> shared, parameters;
  std::vector<ByteState> sharedStates, parameterStates;
  SharedShadow shadow;
  AsyncShadow asyncShadow;
  std::map<uint32_t, Mbarrier> mbarriers; ///< by offset in `shared`
  BulkCopies copies;
  std::vector<Warpgroup> warpgroups;
  uint32_t freeRegisters = 0; ///< of the pool of setmaxnreg
  /// Counts what may let a warp that polls an mbarrier go on.
  uint64_t events = 0;
  std::array<Barrier, 16> barriers;
  ClusterBarrier clusterBarrier;
  std::vector<std::unique_ptr<Warp>> warps;
  std::optional<Finding> finding;
  std::vector<uint64_t> counts; ///< executions of each op

private:
  bool complete(Barrier &barrier);
  uint32_t liveWarps() const;
  void runWarps();
  void reportDeadlock();
  void checkEnd();
};

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_BLOCK_H
