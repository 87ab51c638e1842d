//===- SharedShadow.cpp - Race detection in shared memory -----------------===//

#include "SharedShadow.h"
#include <algorithm>

using namespace saccade::ptxsim;

void SharedShadow::reset(uint32_t bytes) {
  cells.assign((bytes + 3) / 4, Cell());
  narrow.clear();
  // References into `narrow` must stay valid during an access to several cells.
  narrow.reserve(cells.size());
  more.clear();
}

/// Visits the cells of a range until `visit` returns false. Partially covered cells are split into bytes.
template <typename F> bool SharedShadow::forEach(uint32_t offset, uint32_t size, F visit) {
  for (uint32_t end = offset + size; offset < end;) {
    Cell &cell = cells[offset / 4];
    uint32_t next = std::min(end, (offset & ~3u) + 4);
    if (!(cell.flags & split)) {
      if (next - offset == 4) {
        if (!visit(cell))
          return false;
        offset = next;
        continue;
      }
      std::array<Cell, 4> bytes;
      bytes.fill(cell);
      narrow.push_back(bytes);
      if (cell.flags & moreReads)
        for (Cell &byte : narrow.back())
          more[&byte] = more[&cell];
      cell.flags = split;
      cell.writeClock = narrow.size() - 1;
    }
    std::array<Cell, 4> &bytes = narrow[cell.writeClock];
    for (; offset < next; ++offset)
      if (!visit(bytes[offset & 3]))
        return false;
  }
  return true;
}

inline bool SharedShadow::ordered(const ClockView &clockView, uint32_t self, uint32_t warp, uint32_t lane,
                                  uint32_t clock) const {
  if (clock < clockView.clocks[warp])
    return true;
  if (warp != clockView.warp)
    return false;
  return lane == self ||
         (lane < 32 && (clockView.partners[self] >> lane & 1) && clock < clockView.partnersClocks[self]);
}

inline bool SharedShadow::readsOrdered(const ClockView &clockView, uint32_t self, const Reads &reads) const {
  for (uint32_t warps = reads.warps; warps; warps &= warps - 1)
    if (!ordered(clockView, self, __builtin_ctz(warps), reads.lane, reads.clock))
      return false;
  return true;
}

bool SharedShadow::orderedByLanes(const ClockView &clockView, uint32_t self, const Reads &accesses) const {
  for (uint32_t warps = accesses.warps; warps; warps &= warps - 1) {
    uint32_t warp = __builtin_ctz(warps);
    if (!ordered(clockView, self, warp, accesses.lane, accesses.clock) &&
        !clockView.known->knowsLane(warp, accesses.lane, accesses.clock))
      return false;
  }
  return true;
}

std::string SharedShadow::describe(const Cell &cell, bool fromRead) const {
  auto who = [](uint32_t warp, uint32_t lane) {
    return "warp " + std::to_string(warp) + (lane < 32 ? " lane " + std::to_string(lane) : "");
  };
  if (fromRead)
    return "which " + who(__builtin_ctz(cell.readWarps), cell.readLane) + " read in line " +
           std::to_string(cell.readLine);
  std::string text = "which " + who(cell.writer >> 5, cell.writer & 31);
  if (cell.flags & pending)
    return text + " writes by the pending cp.async of line " + std::to_string(cell.writeLine);
  return text + " wrote in line " + std::to_string(cell.writeLine);
}

inline void SharedShadow::recordRead(Cell &cell, const ClockView &clockView, uint32_t self) {
  uint32_t bit = uint32_t(1) << clockView.warp;
  Reads before{cell.readClock, cell.readWarps, cell.readLine, cell.readLane};
  if (!cell.readWarps || readsOrdered(clockView, self, before)) {
    // Accesses ordered after this read are ordered after the earlier reads too.
    cell.readWarps = bit;
    cell.readLane = self;
  } else if (cell.readWarps == bit) {
    // Clocks of one warp increase, so the last one suffices.
    cell.readLane = manyLanes;
  } else if (cell.readClock == clockView.now) {
    cell.readWarps |= bit;
    cell.readLane = manyLanes;
  } else {
    more[&cell].push_back(before);
    cell.flags |= moreReads;
    cell.readWarps = bit;
    cell.readLane = self;
  }
  cell.readClock = clockView.now;
  cell.readLine = clockView.line;
}

inline bool SharedShadow::checkAccess(Cell &cell, const ClockView &clockView, uint32_t self, Access access) {
  if (cell.flags & written) {
    bool bothAtomic = isAtomic(access) && (cell.flags & atomicWrite);
    if ((cell.flags & pending) ||
        (!bothAtomic && !ordered(clockView, self, cell.writer >> 5, cell.writer & 31, cell.writeClock) &&
         !orderedByLanes(clockView, self, lastWrite(cell)))) {
      conflict = describe(cell, /*fromRead=*/false);
      return false;
    }
  }
  if (!isWrite(access)) {
    // An atomic read neither orders accesses nor races with atomic writes, so it is not recorded.
    if (!isAtomic(access))
      recordRead(cell, clockView, self);
    return true;
  }
  if (cell.readWarps) {
    Reads last{cell.readClock, cell.readWarps, cell.readLine, cell.readLane};
    if (!readsOrdered(clockView, self, last) && !orderedByLanes(clockView, self, last)) {
      conflict = describe(cell, /*fromRead=*/true);
      return false;
    }
    if (cell.flags & moreReads)
      for (const Reads &reads : more[&cell])
        if (!orderedByLanes(clockView, self, reads)) {
          cell.readWarps = reads.warps, cell.readLane = reads.lane, cell.readLine = reads.line;
          conflict = describe(cell, /*fromRead=*/true);
          return false;
        }
    if (cell.flags & moreReads)
      more.erase(&cell);
    cell.readWarps = 0;
  }
  cell.flags = written | (isAtomic(access) ? atomicWrite : 0);
  cell.writer = clockView.warp << 5 | self;
  cell.writeClock = clockView.now;
  cell.writeLine = clockView.line;
  return true;
}

unsigned SharedShadow::access(const ClockView &clockView, uint32_t mask, const uint32_t offsets[32], uint32_t size,
                              Access access) {
  for (; mask; mask &= mask - 1) {
    uint32_t lane = __builtin_ctz(mask);
    if (!forEach(offsets[lane], size, [&](Cell &cell) { return checkAccess(cell, clockView, lane, access); }))
      return lane;
  }
  return 32;
}

unsigned SharedShadow::begin(const ClockView &clockView, uint32_t mask, const uint32_t offsets[32], uint32_t size) {
  for (; mask; mask &= mask - 1) {
    uint32_t lane = __builtin_ctz(mask);
    bool good = forEach(offsets[lane], size, [&](Cell &cell) {
      if (!checkAccess(cell, clockView, lane, Access::Write))
        return false;
      cell.flags |= pending;
      return true;
    });
    if (!good)
      return lane;
  }
  return 32;
}

void SharedShadow::completeCopy(const ClockView &clockView, uint32_t offset, uint32_t size) {
  forEach(offset, size, [&](Cell &cell) {
    cell.flags &= ~pending;
    cell.writeClock = clockView.now;
    return true;
  });
}

bool SharedShadow::checkAsync(const ClockView &clockView, uint32_t lane, uint32_t offset, bool isWrite,
                              llvm::function_ref<bool(uint32_t, uint32_t, uint32_t)> isFenced) {
  auto check = [&](Cell &cell) {
    if (cell.flags & written) {
      uint32_t warp = cell.writer >> 5, writer = cell.writer & 31;
      bool isOrdered = !(cell.flags & pending) && orderedByLanes(clockView, lane, lastWrite(cell));
      if (!isOrdered || !isFenced(warp, writer, cell.writeClock)) {
        conflict = describe(cell, /*fromRead=*/false);
        conflict += isOrdered ? ", without a fence.proxy.async in between" : "; the two accesses are unordered";
        return false;
      }
    }
    if (!isWrite || !cell.readWarps)
      return true;
    bool good = orderedByLanes(clockView, lane, {cell.readClock, cell.readWarps, cell.readLine, cell.readLane});
    if (cell.flags & moreReads)
      for (const Reads &reads : more[&cell])
        good &= orderedByLanes(clockView, lane, reads);
    if (!good)
      conflict = describe(cell, /*fromRead=*/true) + "; the two accesses are unordered";
    return good;
  };
  for (Cell *cell = &cells[offset / 4]; cell != &cells[offset / 4] + 4; ++cell) {
    if (!(cell->flags & split)) {
      if (!check(*cell))
        return false;
      continue;
    }
    for (Cell &byte : narrow[cell->writeClock])
      if (!check(byte))
        return false;
  }
  return true;
}

void SharedShadow::forget(uint32_t offset) {
  for (Cell *cell = &cells[offset / 4]; cell != &cells[offset / 4] + 4; ++cell) {
    auto reset = [&](Cell &one) {
      if (one.flags & moreReads)
        more.erase(&one);
      one = Cell();
    };
    if (!(cell->flags & split)) {
      reset(*cell);
      continue;
    }
    for (Cell &byte : narrow[cell->writeClock])
      reset(byte);
  }
}
