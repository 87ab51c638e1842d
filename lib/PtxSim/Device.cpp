//===- Device.cpp - The global memory of a simulated GPU ------------------===//

#include "saccade/PtxSim/Device.h"
#include <algorithm>
#include <cstring>

using namespace saccade::ptxsim;

/// Unallocated bytes between allocations, so that an overrun does not hit the next one.
static constexpr uint64_t guard = 1 << 16;

uint64_t Device::allocate(uint64_t size, std::string name, uint64_t alignment) {
  auto allocation = std::make_unique<Allocation>();
  uint64_t address = (next + alignment - 1) / alignment * alignment;
  allocation->address = address;
  allocation->bytes.resize(size);
  allocation->states.resize(size, ByteState::Undefined);
  allocation->name = std::move(name);
  next = address + size + guard;
  allocations[address] = std::move(allocation);
  return address;
}

uint64_t Device::allocate(llvm::ArrayRef<uint8_t> content, std::string name, uint64_t alignment) {
  uint64_t address = allocate(content.size(), std::move(name), alignment);
  write(address, content);
  return address;
}

bool Device::release(uint64_t address) { return allocations.erase(address) != 0; }

Allocation *Device::find(uint64_t address) {
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin())
    return nullptr;
  Allocation *allocation = std::prev(after)->second.get();
  return allocation->contains(address, 1) ? allocation : nullptr;
}

bool Device::write(uint64_t address, llvm::ArrayRef<uint8_t> content) {
  if (content.empty())
    return true;
  Allocation *allocation = find(address);
  if (!allocation || !allocation->contains(address, content.size()))
    return false;
  std::memcpy(allocation->bytes.data() + (address - allocation->address), content.data(), content.size());
  std::fill_n(allocation->states.begin() + (address - allocation->address), content.size(), ByteState::Defined);
  return true;
}

bool Device::read(uint64_t address, llvm::MutableArrayRef<uint8_t> content) const {
  if (content.empty())
    return true;
  const Allocation *allocation = const_cast<Device *>(this)->find(address);
  if (!allocation || !allocation->contains(address, content.size()))
    return false;
  std::memcpy(content.data(), allocation->bytes.data() + (address - allocation->address), content.size());
  return true;
}

uint64_t Device::undefinedBytes(uint64_t address, uint64_t size) const {
  const Allocation *allocation = const_cast<Device *>(this)->find(address);
  if (!allocation || !allocation->contains(address, size))
    return size;
  auto first = allocation->states.begin() + (address - allocation->address);
  return std::count(first, first + size, ByteState::Undefined);
}

void Device::endLaunch() {
  for (auto &[address, allocation] : allocations)
    for (ByteState &state : allocation->states)
      state = state == ByteState::Undefined ? ByteState::Undefined : ByteState::Defined;
}
