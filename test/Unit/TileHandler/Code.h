//===- Code.h - Machine code in memory ----------------------------*- C++ -*-===//
#ifndef SACCADE_TEST_UNIT_TILEHANDLER_CODE_H
#define SACCADE_TEST_UNIT_TILEHANDLER_CODE_H

#include <cstdint>
#include <cstring>
#include <sys/mman.h>

namespace tilehandler {

/// Executable memory with a copy of the code.
class Code {
public:
  /// `isTrapped`: the handler executes the instructions, because their VEX.W is 1.
  Code(const uint8_t *begin, const uint8_t *end, bool isTrapped) {
    memory = static_cast<uint8_t *>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memcpy(memory, begin, size_t(end - begin));
    // Nothing else in the code starts with this byte.
    for (uint8_t *at = memory; isTrapped && at < memory + (end - begin); ++at)
      if (*at == 0xc4)
        at[2] |= 0x80;
    mprotect(memory, size, PROT_READ | PROT_EXEC);
  }
  Code(const Code &) = delete;
  ~Code() { munmap(memory, size); }

  template <typename... Arguments>
  __attribute__((no_sanitize("function"))) // which reads what precedes a function
  void operator()(Arguments... arguments) const {
    reinterpret_cast<void (*)(Arguments...)>(memory)(arguments...);
  }

private:
  static constexpr size_t size = 4096;
  uint8_t *memory;
};

} // namespace tilehandler

#endif // SACCADE_TEST_UNIT_TILEHANDLER_CODE_H
