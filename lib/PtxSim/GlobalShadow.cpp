//===- GlobalShadow.cpp - Races between blocks in global memory -----------===//

#include "GlobalShadow.h"

using namespace saccade::ptxsim;

void GlobalShadow::fence(uint32_t block) {
  Clocks &clocks = known[block];
  ++clocks[block];
  fenced[block] = clocks;
}

bool GlobalShadow::access(uint32_t block, uint64_t address, uint32_t size, Access access, uint32_t line,
                          bool isRelaxed) {
  Clocks &clocks = known[block];
  auto isOrdered = [&](const Event &event) {
    if (event.block == none || event.block == block)
      return true;
    auto found = clocks.find(event.block);
    return found != clocks.end() && event.clock < found->second;
  };
  auto describe = [&](const Event &event, const char *did) {
    conflict = "block " + std::to_string(event.block) + " " + did + " in line " + std::to_string(event.line);
    return false;
  };
  if (isAtomic(access)) {
    Clocks &here = released[address];
    ++clocks[block];
    auto join = [](Clocks &to, const Clocks &from) {
      for (auto [other, clock] : from)
        to[other] = std::max(to[other], clock);
    };
    join(clocks, here);
    join(here, isRelaxed ? fenced[block] : clocks);
  }
  Event event = {block, clocks[block], line};
  for (uint64_t at = address; at < address + size; ++at) {
    std::vector<Byte> &page = pages[at / pageBytes];
    if (page.empty())
      page.resize(pageBytes);
    Byte &byte = page[at % pageBytes];
    if (!isOrdered(byte.write) && !(isAtomic(access) && byte.isAtomic))
      return describe(byte.write, "wrote");
    if (!isWrite(access)) {
      if (isAtomic(access))
        continue;
      if (!isOrdered(byte.read)) {
        moreReads[at].push_back(byte.read);
        byte.hasMoreReads = true;
      }
      byte.read = event;
      continue;
    }
    if (!isOrdered(byte.read))
      return describe(byte.read, "read");
    if (byte.hasMoreReads) {
      for (const Event &read : moreReads[at])
        if (!isOrdered(read))
          return describe(read, "read");
      moreReads.erase(at);
    }
    byte = {event, {}, isAtomic(access), false};
  }
  return true;
}
