//===- Warp.h - The state of a warp ---------------------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_WARP_H
#define SACCADE_LIB_PTXSIM_WARP_H

#include "Code.h"
#include "SharedShadow.h"
#include "llvm/ADT/Twine.h"

namespace saccade::ptxsim {

class Block;

/// Calls `visit(lane)` for every lane of `mask`.
template <typename F> inline void forLanes(uint32_t mask, F visit) {
  for (; mask; mask &= mask - 1)
    visit(unsigned(__builtin_ctz(mask)));
}

/// Memory of one lane's access, and what is known of its bytes.
struct Place {
  uint8_t *bytes;
  ByteState *states;
};

/// An access as a whole warp makes it.
struct Request {
  Space space;
  uint32_t size, alignment; ///< in bytes, of each lane
  Access access;
  bool nonCoherent = false;  ///< ld.global.nc
  bool asynchronous = false; ///< the write goes on until the shadow's `settle`
};

class Warp {
public:
  Warp(Block &block, unsigned id) : block(block), id(id) {}

  /// Everything as at the start of a block's first instruction; `lanes` exist.
  void start(uint32_t lanes);
  /// Executes up to `budget` instructions, until the warp waits, ends or fails.
  void run(uint64_t budget);

  // --- registers ---
  template <typename T> T *row(Slot slot) { return reinterpret_cast<T *>(file + slot.offset); }
  uint32_t &predicate(Slot slot) { return *reinterpret_cast<uint32_t *>(file + slot.offset); }
  void setPredicate(Slot slot, uint32_t bits, uint32_t mask) {
    predicate(slot) = (predicate(slot) & ~mask) | (bits & mask);
  }
  /// The undefined lanes of a slot.
  uint32_t &undefined(Slot slot) { return undefinedLanes[slot.number]; }
  void setUndefined(Slot slot, uint32_t lanes, uint32_t mask) {
    undefined(slot) = (undefined(slot) & ~mask) | (lanes & mask);
  }
  /// False, and a finding, where one of `mask`'s lanes is undefined.
  bool requireDefined(Slot slot, uint32_t mask, const char *what);
  /// The lanes' values of a row as numbers, whatever its width.
  void widen(Slot slot, unsigned bytes, uint32_t mask, uint64_t values[32]);

  // --- memory: Spaces.cpp ---
  /// Finds the memory of each lane's access to `addresses`, and checks it. False, and a finding, on any error.
  bool resolve(const Request &request, const uint64_t addresses[32], uint32_t mask, Place places[32]);
  /// The lane's local memory, without checks.
  uint8_t *localBytes(unsigned lane, uint32_t offset) { return local.data() + lane * localSize() + offset; }
  ByteState *localByteStates(unsigned lane, uint32_t offset) {
    return localStates.data() + lane * localSize() + offset;
  }
  uint32_t localSize() const;
  ClockView clockView() const;

  // --- control ---
  uint32_t activeLanes() const { return stack.back().lanes; }
  /// Lanes that have not ended.
  uint32_t live() const { return liveLanes; }
  void jump(uint32_t target) { stack.back().next = target; }
  uint32_t nextOp() const { return stack.back().next; }
  /// Lanes `taken` go on at `target`, the others at the next instruction, until they meet.
  void branch(uint32_t target, uint32_t taken, uint32_t reconvergence);
  /// Like `branch`, with lanes in groups.
  void branch(const std::vector<std::pair<uint32_t, uint32_t>> &targetsAndLanes, uint32_t reconvergence);
  void call(uint32_t target, uint32_t lanes);
  /// `lanes` return from a function, or end in the entry.
  void leave(uint32_t lanes);
  void end(uint32_t lanes);
  /// `bar.warp.sync`: orders what `lanes` did before what they do afterwards.
  void synchronise(uint32_t lanes);

  /// The first finding of the block ends it.
  void fail(FindingKind kind, const llvm::Twine &message, unsigned lane = ~0u);

  Block &block;
  const unsigned id;
  enum class State : uint8_t { Ready, Waiting, Done } state = State::Ready;
  std::vector<uint32_t> clocks; ///< see Viewer
  uint32_t now = 0;             ///< counts this warp's synchronisations
  const Op *current = nullptr;
  uint64_t executed = 0;
  /// Line of the last read of undefined memory, for messages.
  uint32_t undefinedOrigin = 0;

  /// A `cp.async` of this warp whose bytes nobody has waited for.
  struct Copy {
    const Op *op;
    uint32_t lanes;
    uint32_t size;
    std::array<uint32_t, 32> sourceSize, group;
    std::array<Place, 32> source, destination;
  };
  std::vector<Copy> copies;
  std::array<uint32_t, 32> committedGroups = {};

  /// Where `bar.red` puts its result when the barrier completes.
  struct {
    Slot slot;
    uint32_t kind = 0, mask = 0;
  } reduction;

private:
  struct Group {
    uint32_t next, reconvergence, lanes, depth;
  };
  void dropEmptyGroups();
  void perturb(const Op &op, uint32_t mask);

  uint8_t *file = nullptr;
  std::vector<uint8_t> storage;
  std::vector<uint32_t> undefinedLanes;
  std::vector<Group> stack; ///< the last one runs
  uint32_t liveLanes = 0;
  std::vector<uint8_t> local;
  std::vector<ByteState> localStates;
  Allocation *lastAllocation = nullptr;
  std::array<uint32_t, 32> partners = {}, partnersClock = {};
};

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_WARP_H
