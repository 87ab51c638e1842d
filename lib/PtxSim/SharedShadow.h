//===- SharedShadow.h - Who touched which byte of shared memory -----*- C++ -*-===//
//
// Finds accesses that nothing orders. Time is counted in synchronisations of the block: each access is stamped with
// the count, and a warp knows of every other one up to which stamp its accesses happened before (a vector clock), as in
// FastTrack (Flanagan and Freund: FastTrack: efficient and precise dynamic race detection). Inside a warp lanes are
// ordered only by `bar.warp.sync` and block barriers.
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

/// What a lane knows of the accesses of others.
struct Viewer {
  uint32_t warp, lane, now, line;
  const uint32_t *clocks;           ///< of each warp: earlier stamps happened before
  uint32_t partners, partnersClock; ///< lanes of the last bar.warp.sync that not all took part in, and its stamp
};

class SharedShadow {
public:
  void reset(uint32_t bytes);

  /// Records an access; a description of the earlier one it races with, or "".
  std::string access(const Viewer &viewer, uint32_t offset, uint32_t size, Access access);
  /// Records the start of an asynchronous copy: a write that goes on until `settle`.
  std::string begin(const Viewer &viewer, uint32_t offset, uint32_t size);
  /// The copy is done, for the lane that waited.
  void settle(const Viewer &viewer, uint32_t offset, uint32_t size);

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
  bool ordered(const Viewer &viewer, uint32_t warp, uint32_t lane, uint32_t clock) const;
  bool readsOrdered(const Viewer &viewer, const Reads &reads) const;
  bool touch(Cell &cell, const Viewer &viewer, Access access);
  void recordRead(Cell &cell, const Viewer &viewer);
  std::string describe(const Cell &cell, const Viewer &viewer, bool fromRead) const;

  std::vector<Cell> cells;
  std::vector<std::array<Cell, 4>> narrow; ///< of cells that are split
  std::unordered_map<const Cell *, std::vector<Reads>>
      more; ///< of cells with readers that are not ordered among each other
  std::string conflict;
};

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_SHAREDSHADOW_H
