//===- Scratch.h - The memory of running tasks --------------------*- C++ -*-===//
//
// Released memory stays with its thread (Memory.cpp), so that nothing is allocated once the program is warm. Nested calls
// get a block each, for the outer one is in use meanwhile.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_RUNTIME_CPU_SCRATCH_H
#define SACCADE_LIB_RUNTIME_CPU_SCRATCH_H

#include <cstdint>

namespace saccade::runtime {

/// Holds `bytes` of this thread's scratch for as long as it lives. Also marks the thread as being inside a call.
class [[gnu::visibility("hidden")]] ScratchScope {
public:
  explicit ScratchScope(int64_t bytes);
  ~ScratchScope();
  ScratchScope(const ScratchScope &) = delete;
  ScratchScope &operator=(const ScratchScope &) = delete;

  /// Null where the memory could not be had.
  void *get() const { return memory; }
  /// False inside a running task.
  bool isOutermost() const { return level == 0; }
  /// The same for all scopes of a thread, and for no other thread that lives.
  static const void *thread();

private:
  int level;
  void *memory;
};

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CPU_SCRATCH_H
