//===- Device.h - The global memory of a simulated GPU --------------*- C++ -*-===//
#ifndef SACCADE_PTXSIM_DEVICE_H
#define SACCADE_PTXSIM_DEVICE_H

#include "llvm/ADT/ArrayRef.h"
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace saccade::ptxsim {

/// State of a byte of memory.
enum class ByteState : uint8_t { Undefined = 0, Defined = 1, WrittenByLaunch = 2 };

/// One allocation of global memory. Allocations are never adjacent; accesses outside of them are errors.
struct Allocation {
  uint64_t address = 0;
  std::vector<uint8_t> bytes;
  std::vector<ByteState> states;
  std::string name;
  bool readOnly = false;

  bool contains(uint64_t first, uint64_t size) const {
    return first >= address && size <= bytes.size() && first - address <= bytes.size() - size;
  }
};

/// Global memory. Allocations have exactly the requested size and are aligned to 256 bytes by default, as with the CUDA
/// driver. Only the accesses of a launch are thread-safe.
class Device {
public:
  /// Returns the address. The bytes are undefined. The address of a zero-size allocation must not be accessed.
  uint64_t allocate(uint64_t size, std::string name = "", uint64_t alignment = 256);
  /// Allocates and initialises with `content`.
  uint64_t allocate(llvm::ArrayRef<uint8_t> content, std::string name = "", uint64_t alignment = 256);
  /// Frees an allocation. Returns false if `address` is not the start of one.
  bool release(uint64_t address);

  /// Host access. Returns false if the range is not within one allocation.
  bool write(uint64_t address, llvm::ArrayRef<uint8_t> content);
  bool read(uint64_t address, llvm::MutableArrayRef<uint8_t> content) const;
  /// The number of bytes in the range that have never been written.
  uint64_t undefinedBytes(uint64_t address, uint64_t size) const;

  /// The allocation that contains `address`, or null.
  Allocation *find(uint64_t address);
  void setReadOnly(uint64_t address) { find(address)->readOnly = true; }
  /// Marks the bytes that a launch wrote as `Defined` for the next launch.
  void endLaunch();

  /// Serialises atomic operations of blocks that are simulated in parallel.
  std::mutex atomics;

private:
  std::map<uint64_t, std::unique_ptr<Allocation>> allocations;
  uint64_t next = uint64_t(0x7f) << 32;
};

} // namespace saccade::ptxsim

#endif // SACCADE_PTXSIM_DEVICE_H
