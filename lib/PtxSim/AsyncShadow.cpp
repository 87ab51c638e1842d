//===- AsyncShadow.cpp - Accesses of shared memory by asynchronous units --===//

#include "AsyncShadow.h"
#include <algorithm>

using namespace saccade::ptxsim;

void AsyncShadow::reset(uint32_t bytes, uint32_t numWarps) {
  units.assign((bytes + unit - 1) / unit, Unit());
  agents.clear();
  firstAgent = numWarps;
}

uint32_t AsyncShadow::addAgent(const char *what) {
  agents.push_back(what);
  return firstAgent + agents.size() - 1;
}

bool AsyncShadow::conflictsWith(const Unit &one, const Knowledge &known, bool isWrite) {
  auto describe = [&](const AsyncOperation &operation, const char *does) {
    conflict = std::string("which the ") + agents[operation.agent - firstAgent] + " of line " +
               std::to_string(operation.line) + does;
    return true;
  };
  if (one.writer.agent && !known.knows(one.writer.agent, one.writer.clock))
    return describe(one.writer, " writes");
  if (isWrite)
    for (const AsyncOperation &reader : one.readers)
      if (!known.knows(reader.agent, reader.clock))
        return describe(reader, " reads");
  return false;
}

unsigned AsyncShadow::access(const ClockView &clockView, uint32_t mask, const uint32_t offsets[32], uint32_t size,
                             bool isWrite, bool toMbarrier) {
  for (; mask; mask &= mask - 1) {
    uint32_t lane = __builtin_ctz(mask), offset = offsets[lane], end = offset + size;
    for (uint32_t index = offset / unit; index <= (end - 1) / unit; ++index) {
      const Unit &one = units[index];
      if (!one.isUsed)
        continue;
      for (uint32_t half = 0; half < 2 && !toMbarrier; ++half) {
        uint32_t begin = index * unit + 8 * half;
        if ((one.mbarriers >> half & 1) && offset < begin + 8 && begin < end) {
          conflict = "which is a live mbarrier";
          return lane;
        }
      }
      if (conflictsWith(one, *clockView.known, isWrite)) {
        conflict += " and the thread has not waited for";
        return lane;
      }
    }
  }
  return 32;
}

bool AsyncShadow::check(const Knowledge &known, uint32_t offset, bool isWrite) {
  const Unit &one = units[offset / unit];
  if (!one.isUsed)
    return true;
  if (one.mbarriers) {
    conflict = "which is a live mbarrier";
    return false;
  }
  if (!conflictsWith(one, known, isWrite))
    return true;
  conflict += " and the issuing thread does not know to be complete";
  return false;
}

void AsyncShadow::recordWrite(uint32_t offset, const AsyncOperation &operation) {
  Unit &one = units[offset / unit];
  one.isUsed = true;
  one.writer = operation;
  one.readers.clear();
}

void AsyncShadow::recordRead(uint32_t offset, const AsyncOperation &operation) {
  Unit &one = units[offset / unit];
  one.isUsed = true;
  for (AsyncOperation &reader : one.readers)
    if (reader.agent == operation.agent) {
      reader = operation;
      return;
    }
  one.readers.push_back(operation);
}

void AsyncShadow::markMbarrier(uint32_t offset, bool isLive) {
  Unit &one = units[offset / unit];
  uint8_t bit = offset % unit >= 8 ? 2 : 1;
  one.mbarriers = isLive ? one.mbarriers | bit : one.mbarriers & ~bit;
  one.isUsed = true;
}
