//===- Scratch.h - Scratch memory of tasks ------------------------*- C++ -*-===//
//
// Scratch memory comes from the cache of the thread (Memory.cpp). Nested calls have separate blocks.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_RUNTIME_CPU_SCRATCH_H
#define SACCADE_LIB_RUNTIME_CPU_SCRATCH_H

#include <cstdint>

namespace saccade::runtime {

/// Owns `bytes` of scratch memory of this thread, and marks the thread as inside a call.
class [[gnu::visibility("hidden")]] ScratchScope {
public:
  explicit ScratchScope(int64_t bytes);
  ~ScratchScope();
  ScratchScope(const ScratchScope &) = delete;
  ScratchScope &operator=(const ScratchScope &) = delete;

  /// Null if the allocation failed.
  void *get() const { return memory; }
  /// False inside a running task.
  bool isOutermost() const { return level == 0; }
  /// An identifier of the calling thread, unique among live threads.
  static const void *thread();

private:
  int level;
  void *memory;
};

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CPU_SCRATCH_H
