//===- SharedShadow.h - Race detection in shared memory -------------*- C++ -*-===//
//
// Detects unordered accesses with vector clocks, as in FastTrack (Flanagan and Freund, FastTrack: efficient and precise
// dynamic race detection). A warp's clock counts its synchronisations; shadow cells hold the clocks of the last
// accesses. Lanes of a warp are ordered only by `bar.warp.sync` and block barriers.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_PTXSIM_SHAREDSHADOW_H
#define SACCADE_LIB_PTXSIM_SHAREDSHADOW_H

#include "Knowledge.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace saccade::ptxsim {

enum class Access : uint8_t { Read, Write, AtomicRead, AtomicWrite };
constexpr bool isWrite(Access access) { return access == Access::Write || access == Access::AtomicWrite; }
constexpr bool isAtomic(Access access) { return access >= Access::AtomicRead; }

/// Clocks of a warp, for one access.
struct ClockView {
  uint32_t warp, now, line;
  const uint32_t *clocks; ///< of `known`: accesses with an earlier clock happened before
  const Knowledge *known;
  /// Per lane, and for the warp as a whole: members of its last partial bar.warp.sync, and the clock of it.
  const uint32_t *partners, *partnersClocks;
};

class SharedShadow {
public:
  void reset(uint32_t bytes);

  /// Records an access of each lane of `mask`. Returns the first lane that races with an earlier access, described in
  /// `conflict`, or 32.
  unsigned access(const ClockView &clockView, uint32_t mask, const uint32_t offsets[32], uint32_t size, Access access);
  /// Records the start of an asynchronous copy: a write that is pending until `completeCopy`.
  unsigned begin(const ClockView &clockView, uint32_t mask, const uint32_t offsets[32], uint32_t size);
  /// Completes a copy at the wait of its thread.
  void completeCopy(const ClockView &clockView, uint32_t offset, uint32_t size);

  /// Checks an access of 16 bytes by the async proxy against earlier accesses of threads. `isFenced(warp, lane, clock)`
  /// tells whether a proxy fence orders a write. Returns false on a race, described in `conflict`.
  bool checkAsync(const ClockView &clockView, uint32_t lane, uint32_t offset, bool isWrite,
                  llvm::function_ref<bool(uint32_t, uint32_t, uint32_t)> isFenced);
  /// Forgets the accesses of 16 bytes that a write of the async proxy replaces.
  void forget(uint32_t offset);

  std::string conflict;

private:
  enum : uint8_t { written = 1, pending = 2, atomicWrite = 4, split = 8, moreReads = 16 };
  static constexpr uint8_t manyLanes = 63;

  /// Shadow of four bytes, or of one byte after a narrower access. Reads are those since the last write.
  struct Cell {
    uint32_t writeClock = 0, writeLine = 0, readClock = 0, readWarps = 0, readLine = 0;
    uint16_t writer = 0;
    uint8_t readLane = 0, flags = 0;
  };
  struct Reads {
    uint32_t clock, warps, line;
    uint8_t lane;
  };

  template <typename F> bool forEach(uint32_t offset, uint32_t size, F visit);
  bool ordered(const ClockView &clockView, uint32_t self, uint32_t warp, uint32_t lane, uint32_t clock) const;
  bool readsOrdered(const ClockView &clockView, uint32_t self, const Reads &reads) const;
  /// Like `readsOrdered`, also by the arrivals of single lanes; for accesses that are not ordered otherwise.
  [[gnu::noinline]] bool orderedByLanes(const ClockView &clockView, uint32_t self, const Reads &accesses) const;
  static Reads lastWrite(const Cell &cell) {
    return {cell.writeClock, uint32_t(1) << (cell.writer >> 5), cell.writeLine, uint8_t(cell.writer & 31)};
  }
  bool checkAccess(Cell &cell, const ClockView &clockView, uint32_t self, Access access);
  void recordRead(Cell &cell, const ClockView &clockView, uint32_t self);
  std::string describe(const Cell &cell, bool fromRead) const;

  std::vector<Cell> cells;
  std::vector<std::array<Cell, 4>> narrow; ///< per-byte cells of split cells
  /// Further reads of cells whose readers are mutually unordered.
  std::unordered_map<const Cell *, std::vector<Reads>> more;
};

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_SHAREDSHADOW_H
