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

/// What is known of a byte of memory.
enum class ByteState : uint8_t { Undefined = 0, Defined = 1, WrittenByLaunch = 2 };

/// One piece of global memory. Addresses outside of all pieces are foreign, and pieces never touch.
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

/// Global memory. Allocations are aligned to 256 bytes, as a driver's are, and have exactly the size asked for.
/// Not thread-safe but for what launches do with it.
class Device {
public:
  /// Returns the address. The bytes are undefined. A size of 0 gives an address that no access may use.
  uint64_t allocate(uint64_t size, std::string name = "", uint64_t alignment = 256);
  /// The same, with what it holds.
  uint64_t allocate(llvm::ArrayRef<uint8_t> content, std::string name = "", uint64_t alignment = 256);
  /// Ends an allocation; later accesses are foreign. False where `address` begins none.
  bool release(uint64_t address);

  /// Host access. False where the range does not lie in one allocation.
  bool write(uint64_t address, llvm::ArrayRef<uint8_t> content);
  bool read(uint64_t address, llvm::MutableArrayRef<uint8_t> content) const;
  /// How many of these bytes nobody has written yet.
  uint64_t undefinedBytes(uint64_t address, uint64_t size) const;

  /// The allocation that `address` lies in; null where there is none.
  Allocation *find(uint64_t address);
  void setReadOnly(uint64_t address) { find(address)->readOnly = true; }
  /// What a launch wrote becomes plain content for the next one.
  void endLaunch();

  /// Serialises atomic operations of blocks that run in parallel.
  std::mutex atomics;

private:
  std::map<uint64_t, std::unique_ptr<Allocation>> allocations;
  uint64_t next = uint64_t(0x7f) << 32;
};

} // namespace saccade::ptxsim

#endif // SACCADE_PTXSIM_DEVICE_H
