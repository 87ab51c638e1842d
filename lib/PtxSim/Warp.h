//===- Warp.h - The state of a warp ---------------------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_WARP_H
#define SACCADE_LIB_PTXSIM_WARP_H

#include "Code.h"
#include "SharedShadow.h"
#include "Warpgroup.h"
#include "llvm/ADT/Twine.h"

namespace saccade::ptxsim {

class Block;

/// Calls `visit(lane)` for every lane of `mask`.
template <typename F> inline void forLanes(uint32_t mask, F visit) {
  for (; mask; mask &= mask - 1)
    visit(unsigned(__builtin_ctz(mask)));
}

/// Memory that one lane accesses, and the states of its bytes.
struct Place {
  uint8_t *bytes;
  ByteState *states;
};

/// A memory access of a warp.
struct Request {
  Space space;
  uint32_t size, alignment; ///< in bytes, per lane
  Access access;
  bool nonCoherent = false;  ///< ld.global.nc
  bool asynchronous = false; ///< the write is pending until SharedShadow::completeCopy
  bool toMbarrier = false;   ///< by an mbarrier instruction
  bool byAsyncUnit = false;  ///< the caller records the access of shared memory
  bool isRelaxed = false;    ///< an atomic access that orders no accesses before it without a fence
};

class Warp {
public:
  Warp(Block &block, unsigned id) : block(block), id(id) {}

  /// Resets the warp to the start of the entry, with `lanes` active.
  void start(uint32_t lanes);
  /// Executes up to `budget` instructions, or until the warp waits, exits or fails.
  void run(uint64_t budget);

  // --- registers ---
  template <typename T> T *row(Slot slot) { return reinterpret_cast<T *>(file + slot.offset); }
  uint32_t &predicate(Slot slot) { return *reinterpret_cast<uint32_t *>(file + slot.offset); }
  void setPredicate(Slot slot, uint32_t bits, uint32_t mask) {
    predicate(slot) = (predicate(slot) & ~mask) | (bits & mask);
  }
  /// Mask of the undefined lanes of a slot.
  uint32_t &undefined(Slot slot) { return undefinedLanes[slot.number]; }
  void setUndefined(Slot slot, uint32_t lanes, uint32_t mask) {
    undefined(slot) = (undefined(slot) & ~mask) | (lanes & mask);
  }
  /// Reports a finding and returns false if a lane of `mask` is undefined.
  bool requireDefined(Slot slot, uint32_t mask, const char *what);
  /// Zero-extends the lanes of a row of `bytes` per lane to 64 bits.
  void widen(Slot slot, unsigned bytes, uint32_t mask, uint64_t values[32]);

  // --- memory: Spaces.cpp ---
  /// Resolves the address of each lane to host memory and checks the access. Reports a finding and returns false on
  /// error.
  bool resolve(const Request &request, const uint64_t addresses[32], uint32_t mask, Place places[32]);
  /// The same for one lane and an address of global memory.
  bool resolveGlobal(const Request &request, uint64_t address, unsigned lane, Place &place);
  /// Local memory of a lane, unchecked.
  uint8_t *localBytes(unsigned lane, uint32_t offset) { return local.data() + lane * localSize() + offset; }
  ByteState *localByteStates(unsigned lane, uint32_t offset) {
    return localStates.data() + lane * localSize() + offset;
  }
  uint32_t localSize() const;
  ClockView clockView() const;

  // --- fences ---
  static constexpr uint8_t proxyFence = 1, initFence = 2;
  /// `fence.proxy.async` or `fence.mbarrier_init` by `lanes`.
  void fence(uint8_t kinds, uint32_t lanes);
  /// Whether a lane of another (or this) warp executed a fence of that kind after its access at `clock`, and this warp
  /// is ordered after the fence.
  bool knowsFence(uint32_t writer, uint32_t lane, uint32_t clock, uint8_t kind) const;
  /// Checks an access of 16 bytes of shared memory by an asynchronous operation that `lane` issues (32: the warp).
  bool checkAsync(uint32_t offset, unsigned lane, bool isWrite);

  // --- control ---
  uint32_t activeLanes() const { return stack.back().lanes; }
  /// Lanes that have not exited.
  uint32_t live() const { return liveLanes; }
  void jump(uint32_t target) { stack.back().next = target; }
  uint32_t nextOp() const { return stack.back().next; }
  /// Lanes `taken` continue at `target`, the others at the next instruction, until they reconverge.
  void branch(uint32_t target, uint32_t taken, uint32_t reconvergence);
  /// Branch to several targets, each with a mask of lanes.
  void branch(const std::vector<std::pair<uint32_t, uint32_t>> &targetsAndLanes, uint32_t reconvergence);
  void call(uint32_t target, uint32_t lanes);
  /// `lanes` return from a function; in the entry, they exit.
  void leave(uint32_t lanes);
  void end(uint32_t lanes);
  /// `bar.warp.sync`: orders earlier accesses of `lanes` before their later ones.
  void synchronise(uint32_t lanes);

  /// Tells `to` what happened before, including the accesses of `lanes`.
  void release(Knowledge &to, uint32_t lanes);

  /// Reports a finding. Only the first one of a block is kept; it stops the block.
  void fail(FindingKind kind, const llvm::Twine &message, unsigned lane = ~0u);

  Block &block;
  const unsigned id;
  /// Polling: ready, but a wait for an mbarrier was not successful.
  enum class State : uint8_t { Ready, Polling, Waiting, Done } state = State::Ready;
  /// Whether the warp has arrived at `barrier.cluster`, and all others too, and has not waited yet.
  enum class ClusterState : uint8_t { None, Arrived, Completed } clusterState = ClusterState::None;
  uint32_t polled = 0; ///< offset of the mbarrier that a polling warp waits for
  Knowledge known;     ///< of the accesses of all agents
  uint32_t now = 0;    ///< counts this warp's synchronisations
  const Op *current = nullptr;
  uint64_t executed = 0;
  /// Line of the last read of undefined memory, for messages.
  uint32_t undefinedOrigin = 0;

  /// An outstanding `cp.async` of this warp.
  struct Copy {
    const Op *op;
    uint32_t lanes;
    uint32_t size;
    std::array<uint32_t, 32> sourceSize, group;
    std::array<Place, 32> source, destination;
  };
  std::vector<Copy> copies;
  /// Completes all but the last `pending` groups of the lanes in `mask`; ~0 completes all copies, committed or not.
  void completeCopies(uint32_t mask, uint32_t pending);
  std::array<uint32_t, 32> committedGroups = {};

  MatrixRegisters matrices;
  uint32_t registers = 0; ///< of a thread, see setmaxnreg

  /// Result slot of a pending `bar.red`.
  struct {
    Slot slot;
    uint32_t kind = 0, mask = 0;
  } reduction;

private:
  struct Fence {
    uint32_t clock, lanes;
    uint8_t kinds;
  };
  struct Group {
    uint32_t next, reconvergence, lanes, depth;
  };
  void dropEmptyGroups();
  void perturb(const Op &op, uint32_t mask);

  uint8_t *file = nullptr;
  std::vector<uint8_t> storage;
  std::vector<uint32_t> undefinedLanes;
  std::vector<Group> stack;  ///< the last group runs
  std::vector<Fence> fences; ///< by ascending clock
  uint32_t liveLanes = 0;
  std::vector<uint8_t> local;
  std::vector<ByteState> localStates;
  Allocation *lastAllocation = nullptr;
  std::array<uint32_t, 33> partners = {}, partnersClock = {}; ///< the last one is that of the warp: none
};

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_WARP_H
