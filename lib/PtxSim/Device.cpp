//===- Device.cpp - The global memory of a simulated GPU ------------------===//

#include "saccade/PtxSim/Device.h"
#include <algorithm>
#include <cstring>

using namespace saccade::ptxsim;

/// Between allocations, so that running off one never lands in another.
static constexpr uint64_t guard = 1 << 16;

uint64_t Device::allocate(uint64_t size, std::string name, uint64_t alignment) {
  auto piece = std::make_unique<Allocation>();
  uint64_t address = (next + alignment - 1) / alignment * alignment;
  piece->address = address;
  piece->bytes.resize(size);
  piece->states.resize(size, ByteState::Undefined);
  piece->name = std::move(name);
  next = address + size + guard;
  allocations[address] = std::move(piece);
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
  Allocation *piece = std::prev(after)->second.get();
  return piece->contains(address, 1) ? piece : nullptr;
}

bool Device::write(uint64_t address, llvm::ArrayRef<uint8_t> content) {
  if (content.empty())
    return true;
  Allocation *piece = find(address);
  if (!piece || !piece->contains(address, content.size()))
    return false;
  std::memcpy(piece->bytes.data() + (address - piece->address), content.data(), content.size());
  std::fill_n(piece->states.begin() + (address - piece->address), content.size(), ByteState::Defined);
  return true;
}

bool Device::read(uint64_t address, llvm::MutableArrayRef<uint8_t> content) const {
  if (content.empty())
    return true;
  const Allocation *piece = const_cast<Device *>(this)->find(address);
  if (!piece || !piece->contains(address, content.size()))
    return false;
  std::memcpy(content.data(), piece->bytes.data() + (address - piece->address), content.size());
  return true;
}

uint64_t Device::undefinedBytes(uint64_t address, uint64_t size) const {
  const Allocation *piece = const_cast<Device *>(this)->find(address);
  if (!piece || !piece->contains(address, size))
    return size;
  auto first = piece->states.begin() + (address - piece->address);
  return std::count(first, first + size, ByteState::Undefined);
}

void Device::endLaunch() {
  for (auto &[address, piece] : allocations)
    for (ByteState &state : piece->states)
      state = state == ByteState::Undefined ? ByteState::Undefined : ByteState::Defined;
}
