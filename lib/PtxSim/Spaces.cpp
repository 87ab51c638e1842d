//===- Spaces.cpp - Where the bytes of an access are, and whether it may --===//

#include "Block.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>

using namespace saccade::ptxsim;

static std::string hex(uint64_t value) { return "0x" + llvm::utohexstr(value, /*LowerCase=*/true); }

static const char *spaceName(Space space) {
  switch (space) {
  case Space::Shared:
    return "shared";
  case Space::Local:
    return "local";
  case Space::Param:
    return "parameter";
  default:
    return "global";
  }
}

/// An access that crosses no allocation's end, or a description of what is wrong.
static std::string foreign(Device &device, uint64_t address, uint32_t size) {
  std::string text = std::to_string(size) + " bytes at " + hex(address) + " of global memory ";
  if (Allocation *piece = device.find(address))
    return text + "cross the end of " + (piece->name.empty() ? "an allocation" : "'" + piece->name + "'") + " of " +
           std::to_string(piece->bytes.size()) + " bytes, at byte " + std::to_string(address - piece->address);
  // What ends shortly before is most likely what was meant.
  for (uint64_t back = 1; back <= 4096; back *= 2)
    if (Allocation *piece = device.find(address - back))
      return text + "lie in no allocation; " + std::to_string(address - piece->address - piece->bytes.size()) +
             " bytes before them ends " + (piece->name.empty() ? "one" : "'" + piece->name + "'");
  return text + "lie in no allocation";
}

bool Warp::resolve(const Request &request, const uint64_t addresses[32], uint32_t mask, Place places[32]) {
  const uint32_t size = request.size;
  uint32_t offsets[32], inShared = 0;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    unsigned lane = __builtin_ctz(rest);
    uint64_t address = addresses[lane];
    Space space = request.space;
    if (space == Space::Generic) {
      uint64_t window = address & windowMask;
      space = window == sharedWindow  ? Space::Shared
              : window == localWindow ? Space::Local
              : window == paramWindow ? Space::Param
                                      : Space::Global;
      if (space != Space::Global)
        address &= ~windowMask;
    }
    if (address & (request.alignment - 1)) {
      fail(FindingKind::Misaligned,
           "address " + hex(address) + " of " + spaceName(space) + " memory is no multiple of " +
               llvm::Twine(request.alignment),
           lane);
      return false;
    }
    auto outside = [&](uint64_t start, uint64_t bytes) {
      fail(FindingKind::OutOfBounds,
           llvm::Twine(size) + " bytes at " + hex(address) + " of " + spaceName(space) + " memory, which has " +
               llvm::Twine(bytes) + " bytes from " + hex(start),
           lane);
      return false;
    };
    switch (space) {
    case Space::Shared: {
      uint64_t offset = address - sharedStart;
      if (offset >= block.shared.size() || size > block.shared.size() - offset)
        return outside(sharedStart, block.shared.size());
      offsets[lane] = offset;
      inShared |= uint32_t(1) << lane;
      places[lane] = {block.shared.data() + offset, block.sharedStates.data() + offset};
      break;
    }
    case Space::Local: {
      uint64_t offset = address - localStart;
      if (offset >= localSize() || size > localSize() - offset)
        return outside(localStart, localSize());
      places[lane] = {localBytes(lane, offset), localByteStates(lane, offset)};
      break;
    }
    case Space::Param:
      if (address >= block.parameters.size() || size > block.parameters.size() - address)
        return outside(0, block.parameters.size());
      if (isWrite(request.access)) {
        fail(FindingKind::ReadOnly, "writes to a parameter", lane);
        return false;
      }
      places[lane] = {block.parameters.data() + address, block.parameterStates.data() + address};
      break;
    default: {
      Allocation *piece = lastAllocation;
      if (!piece || !piece->contains(address, size)) {
        piece = block.code.device->find(address);
        if (!piece || !piece->contains(address, size)) {
          fail(FindingKind::OutOfBounds, foreign(*block.code.device, address, size), lane);
          return false;
        }
        lastAllocation = piece;
      }
      if (piece->readOnly && isWrite(request.access)) {
        fail(FindingKind::ReadOnly, "writes to '" + llvm::Twine(piece->name) + "', which is read-only", lane);
        return false;
      }
      uint64_t offset = address - piece->address;
      places[lane] = {piece->bytes.data() + offset, piece->states.data() + offset};
      if (request.nonCoherent && std::find(places[lane].states, places[lane].states + size,
                                           ByteState::WrittenByLaunch) != places[lane].states + size) {
        fail(FindingKind::ReadOnly, "reads through the non-coherent cache what this launch has written", lane);
        return false;
      }
    }
    }
  }
  if (!inShared || !block.launch.checkRaces)
    return true;
  unsigned lane = request.asynchronous ? block.shadow.begin(clockView(), inShared, offsets, size)
                                       : block.shadow.access(clockView(), inShared, offsets, size, request.access);
  if (lane == 32)
    return true;
  fail(FindingKind::Race,
       std::string(isWrite(request.access) ? "writes" : "reads") + " shared memory at " +
           hex(offsets[lane] + sharedStart) + ", " + block.shadow.conflict + "; nothing orders the two",
       lane);
  return false;
}
