//===- Scratch.h - Task memory that a thread keeps ----------------*- C++ -*-===//
//
// A thread's scratch only grows and is kept between calls, so that nothing is allocated once the
// program is warm. Nested calls get a block each, for the outer one is in use meanwhile.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_RUNTIME_CPU_SCRATCH_H
#define SACCADE_LIB_RUNTIME_CPU_SCRATCH_H

#include "saccade/Runtime/Runtime.h"

namespace saccade::runtime {

/// Holds `bytes` of this thread's scratch for as long as it lives. Also marks the thread as being inside a call.
class ScratchScope {
public:
  explicit ScratchScope(int64_t bytes) {
    Stack &stack = local();
    level = stack.depth++;
    if (level < Stack::kept) {
      Block &block = stack.blocks[level];
      if (block.bytes < bytes || !block.memory) {
        saccade_release(block.memory);
        block.memory = saccade_allocate(bytes);
        block.bytes = block.memory ? bytes : 0;
      }
      memory = block.memory;
    } else {
      memory = saccade_allocate(bytes);
    }
  }
  ~ScratchScope() {
    if (level >= Stack::kept)
      saccade_release(memory);
    --local().depth;
  }
  ScratchScope(const ScratchScope &) = delete;
  ScratchScope &operator=(const ScratchScope &) = delete;

  /// Null where the memory could not be had.
  void *get() const { return memory; }
  /// False inside a running task.
  bool isOutermost() const { return level == 0; }

private:
  struct Block {
    void *memory = nullptr;
    int64_t bytes = 0;
  };
  struct Stack {
    static constexpr int kept = 4;
    Block blocks[kept];
    int depth = 0;
    ~Stack() {
      for (Block &block : blocks)
        saccade_release(block.memory);
    }
  };
  static Stack &local() {
    thread_local Stack stack;
    return stack;
  }

  int level;
  void *memory;
};

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CPU_SCRATCH_H
