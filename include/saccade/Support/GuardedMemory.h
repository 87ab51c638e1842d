//===- GuardedMemory.h - Memory that shows wrong accesses ----------*- C++ -*-===//
//
// Memory for tests of compiled code: a block borders on a page without access, and its bytes begin as NaN.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_GUARDEDMEMORY_H
#define SACCADE_SUPPORT_GUARDEDMEMORY_H

#include <cstdint>
#include <string>

namespace saccade {

/// The side of a block where an access out of bounds faults at the first byte.
enum class Guard {
  End,   ///< the block ends where a page without access begins
  Begin, ///< the block begins where a page without access ends
};

/// A repeated pattern of two bytes that is NaN in f64, f32, bf16 and f16, and far out of bounds as an index. NaNs of
/// f64 are signalling; no pattern of two bytes signals in all four types.
constexpr uint16_t poisonPattern = 0x7ff1;

/// Owns a block of memory between two pages without access. A fault on such a page ends the process with a message that
/// names the block. Allocation failure ends the process too.
class GuardedMemory {
public:
  /// Allocates `bytes`, aligned to `alignment`, a power of two up to the size of a page. With Guard::End and a size
  /// that is no multiple of the alignment, the rest follows the block.
  GuardedMemory(int64_t bytes, int64_t alignment, Guard guard, std::string name);
  ~GuardedMemory();
  GuardedMemory(GuardedMemory &&other) noexcept;
  GuardedMemory &operator=(GuardedMemory &&) = delete;
  GuardedMemory(const GuardedMemory &) = delete;

  char *data() const { return block; }
  int64_t bytes() const { return size; }
  /// Fills the block and the rest of its pages with the pattern.
  void poison();
  /// Makes the block read-only.
  void protect();
  /// Whether the rest of its pages, outside of the block, still has the pattern.
  bool isRestIntact() const;

private:
  void *mapping = nullptr;
  int64_t mappedBytes = 0;
  char *block = nullptr, *pages = nullptr;
  int64_t size = 0, pageBytes = 0;
  std::string name;
  int slot = -1;
};

} // namespace saccade

#endif // SACCADE_SUPPORT_GUARDEDMEMORY_H
