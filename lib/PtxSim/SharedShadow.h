//===- SharedShadow.h - Who touched which byte of shared memory -----*- C++ -*-===//
//
// Finds accesses that nothing orders. Every warp counts its synchronisations; each access is stamped with
// its warp's count, and a warp knows of every other one up to which stamp its accesses happened before (a vector
// clock), as in FastTrack (Flanagan and Freund: FastTrack: efficient and precise dynamic race detection). Inside a warp
// lanes are ordered only by `bar.warp.sync` and block barriers.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_PTXSIM_SHAREDSHADOW_H
#define SACCADE_LIB_PTXSIM_SHAREDSHADOW_H

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace saccade::ptxsim {

enum class Access : uint8_t { Read, Write, AtomicRead, AtomicWrite };
constexpr bool isWrite(Access access) { return access == Access::Write || access == Access::AtomicWrite; }
constexpr bool isAtomic(Access access) { return access >= Access::AtomicRead; }

/// What the lanes of a warp know of the accesses of others.
struct ClockView {
  uint32_t warp, now, line;
  const uint32_t *clocks; ///< of each warp: earlier stamps happened before
  /// Of each lane: who took part in its last bar.warp.sync of a part of the warp, and its stamp.
  const uint32_t *partners, *partnersClocks;
};

class SharedShadow {
public:
  void reset(uint32_t bytes);

  /// Records an access of each lane of `mask`. The first lane for which it races with an earlier one, which `conflict`
  /// then describes; 32 where there is none.
  unsigned access(const ClockView &clockView, uint32_t mask, const uint32_t offsets[32], uint32_t size, Access access);
  /// The same for the start of an asynchronous copy: a write that goes on until `settle`.
  unsigned begin(const ClockView &clockView, uint32_t mask, const uint32_t offsets[32], uint32_t size);
  /// The copy is done, for the lane that waited.
  void completeCopy(const ClockView &clockView, uint32_t offset, uint32_t size);

  std::string conflict;

private:
  enum : uint8_t { written = 1, pending = 2, atomicWrite = 4, split = 8, moreReads = 16 };
  static constexpr uint8_t manyLanes = 63;

  /// Four bytes, or one of them where accesses were narrower. Reads are those since the last write.
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
  bool checkAccess(Cell &cell, const ClockView &clockView, uint32_t self, Access access);
  void recordRead(Cell &cell, const ClockView &clockView, uint32_t self);
  std::string describe(const Cell &cell, bool fromRead) const;

  std::vector<Cell> cells;
  std::vector<std::array<Cell, 4>> narrow; ///< of cells that are split
  std::unordered_map<const Cell *, std::vector<Reads>>
      more; ///< of cells with readers that are not ordered among each other
};

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_SHAREDSHADOW_H
