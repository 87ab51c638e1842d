//===- Spaces.cpp - Resolves and checks addresses -------------------------===//

#include "Block.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Compiler.h"
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

/// Describes an access of global memory that is not within one allocation.
static std::string describeUnallocated(Device &device, uint64_t address, uint32_t size) {
  std::string text = std::to_string(size) + " bytes at " + hex(address) + " of global memory ";
  if (Allocation *allocation = device.find(address))
    return text + "cross the end of " + (allocation->name.empty() ? "an allocation" : "'" + allocation->name + "'") +
           " of " + std::to_string(allocation->bytes.size()) + " bytes, at byte " +
           std::to_string(address - allocation->address);
  // An allocation that ends shortly before is most likely the intended one.
  for (uint64_t back = 1; back <= 4096; back *= 2)
    if (Allocation *allocation = device.find(address - back))
      return text + "are not allocated; they start " +
             std::to_string(address - allocation->address - allocation->bytes.size()) + " bytes after the end of " +
             (allocation->name.empty() ? "an allocation" : "'" + allocation->name + "'");
  return text + "are not allocated";
}

// Inlined, since it is called for each lane.
LLVM_ATTRIBUTE_ALWAYS_INLINE bool Warp::resolveGlobal(const Request &request, uint64_t address, unsigned lane,
                                                      Place &place) {
  const uint32_t size = request.size;
  Allocation *allocation = lastAllocation;
  if (!allocation || !allocation->contains(address, size)) {
    allocation = block.code.device->find(address);
    if (!allocation || !allocation->contains(address, size)) {
      fail(FindingKind::OutOfBounds, describeUnallocated(*block.code.device, address, size), lane);
      return false;
    }
    lastAllocation = allocation;
  }
  if (allocation->readOnly && isWrite(request.access)) {
    fail(FindingKind::ReadOnly, "write to '" + llvm::Twine(allocation->name) + "', which is read-only", lane);
    return false;
  }
  uint64_t offset = address - allocation->address;
  place = {allocation->bytes.data() + offset, allocation->states.data() + offset};
  if (block.globalShadow && !allocation->readOnly &&
      !block.globalShadow->access(block.number, address, size, request.access, current->line, request.isRelaxed)) {
    fail(FindingKind::Race,
         std::string(isWrite(request.access) ? "write to" : "read of") + " global memory at " + hex(address) +
             ", which " + block.globalShadow->conflict + "; the two accesses are unordered",
         lane);
    return false;
  }
  if (request.nonCoherent &&
      std::find(place.states, place.states + size, ByteState::WrittenByLaunch) != place.states + size) {
    fail(FindingKind::ReadOnly, "non-coherent load of memory that this launch has written", lane);
    return false;
  }
  return true;
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
           "address " + hex(address) + " of " + spaceName(space) + " memory is not a multiple of " +
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
        fail(FindingKind::ReadOnly, "write to a parameter", lane);
        return false;
      }
      places[lane] = {block.parameters.data() + address, block.parameterStates.data() + address};
      break;
    default:
      if (!resolveGlobal(request, address, lane, places[lane]))
        return false;
    }
  }
  if (!inShared || !block.launch.checkRaces || request.byAsyncUnit)
    return true;
  if (block.kernel.usesAsync) {
    unsigned lane =
        block.asyncShadow.access(clockView(), inShared, offsets, size, isWrite(request.access), request.toMbarrier);
    if (lane != 32) {
      fail(FindingKind::Race,
           std::string(isWrite(request.access) ? "write to" : "read of") + " shared memory at " +
               hex(offsets[lane] + sharedStart) + ", " + block.asyncShadow.conflict,
           lane);
      return false;
    }
  }
  unsigned lane = request.asynchronous ? block.shadow.begin(clockView(), inShared, offsets, size)
                                       : block.shadow.access(clockView(), inShared, offsets, size, request.access);
  if (lane == 32)
    return true;
  fail(FindingKind::Race,
       std::string(isWrite(request.access) ? "write to" : "read of") + " shared memory at " +
           hex(offsets[lane] + sharedStart) + ", " + block.shadow.conflict + "; the two accesses are unordered",
       lane);
  return false;
}
