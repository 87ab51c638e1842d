//===- Scratch.cpp - Task memory that a thread keeps --------------------------===//
//
// A key of pthreads releases the memory at the thread's end: the destructor of a thread_local would need the C++
// library at link time.
//
//===----------------------------------------------------------------------===//
#include "Scratch.h"
#include "saccade/Runtime/Runtime.h"
#include <pthread.h>

using namespace saccade::runtime;

namespace {
struct Block {
  void *memory;
  int64_t bytes;
};
struct Stack {
  static constexpr int kept = 4;
  Block blocks[kept];
  int depth;
  bool willBeReleased;
};
} // namespace

static thread_local Stack stack;
static pthread_key_t key;
static bool haveKey;

static void releaseStack(void *memory) {
  auto *stack = static_cast<Stack *>(memory);
  for (Block &block : stack->blocks) {
    saccade_release(block.memory);
    block = {};
  }
  stack->willBeReleased = false;
}

/// Where the process is out of keys, the thread's last scratch leaks.
static void releaseAtThreadEnd(Stack &stack) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, [] { haveKey = pthread_key_create(&key, releaseStack) == 0; });
  stack.willBeReleased = haveKey && pthread_setspecific(key, &stack) == 0;
}

ScratchScope::ScratchScope(int64_t bytes) : level(stack.depth++) {
  if (level >= Stack::kept) {
    memory = saccade_allocate(bytes);
    return;
  }
  Block &block = stack.blocks[level];
  if (block.bytes < bytes || !block.memory) {
    if (!stack.willBeReleased)
      releaseAtThreadEnd(stack);
    saccade_release(block.memory);
    block.memory = saccade_allocate(bytes);
    block.bytes = block.memory ? bytes : 0;
  }
  memory = block.memory;
}

ScratchScope::~ScratchScope() {
  if (level >= Stack::kept)
    saccade_release(memory);
  --stack.depth;
}

const void *ScratchScope::thread() { return &stack; }
