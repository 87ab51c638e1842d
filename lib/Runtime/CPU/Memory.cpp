//===- Memory.cpp - Aligned memory for compiled code --------------------------===//
//
// Every buffer of compiled code starts on a cache line, which is also the widest vector.
//
//===----------------------------------------------------------------------===//
#include "saccade/Runtime/Runtime.h"
#include <cstdlib>

void *saccade_allocate(int64_t bytes) {
  constexpr int64_t alignment = 64;
  constexpr int64_t limit = int64_t(1) << 40; // beyond it a size is a mistake, and sanitizers abort rather than fail
  if (bytes < 0 || bytes > limit)
    return nullptr;
  // aligned_alloc wants a multiple of the alignment, and zero bytes must not look like a failure.
  int64_t rounded = bytes == 0 ? alignment : (bytes + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, static_cast<size_t>(rounded));
}

void saccade_release(void *memory) { std::free(memory); }
