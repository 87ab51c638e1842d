//===- LargeStack.cpp - Stack for deeply nested programs ----------------------===//
//
// Parsers, verifiers and printers recurse over the nesting of a program, whose depth is bounded by the length of its
// text, and threads of the host may have a small stack. Untouched stack pages cost no memory. No fault handlers are
// installed, because they would replace those of the host.
//
//===----------------------------------------------------------------------===//
#include "State.h"
#include <csignal>
#include <pthread.h>
#include <sys/mman.h>

namespace {

/// Memory for a stack, with an inaccessible guard area below it.
class StackMemory {
public:
  explicit StackMemory(size_t bytes) : bytes(bytes) {
    memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory != MAP_FAILED)
      mprotect(memory, guardBytes, PROT_NONE);
  }
  ~StackMemory() {
    if (memory != MAP_FAILED)
      munmap(memory, bytes);
  }
  StackMemory(const StackMemory &) = delete;
  StackMemory &operator=(const StackMemory &) = delete;

  bool assignTo(pthread_attr_t &attributes) const {
    return memory != MAP_FAILED &&
           pthread_attr_setstack(&attributes, static_cast<char *>(memory) + guardBytes, bytes - guardBytes) == 0;
  }

private:
  static constexpr size_t guardBytes = 64 << 10;
  const size_t bytes;
  void *memory;
};

} // namespace

static bool runWithStack(size_t bytes, llvm::function_ref<void()> &body) {
  StackMemory stack(bytes);
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0)
    return false;
  auto run = [](void *body) -> void * {
    (*static_cast<llvm::function_ref<void()> *>(body))();
    return nullptr;
  };
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
    sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  pthread_t thread;
  bool started = stack.assignTo(attributes) && pthread_create(&thread, &attributes, run, &body) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return started && pthread_join(thread, nullptr) == 0;
}

bool saccade::runOnLargeStack(size_t sourceBytes, llvm::function_ref<void()> body) {
  constexpr size_t minBytes = size_t(8) << 20, base = size_t(64) << 20, perSourceByte = 4096;
  // Retry with a smaller stack in case the address space is limited.
  for (size_t bytes = base + sourceBytes * perSourceByte; bytes >= minBytes; bytes /= 4)
    if (runWithStack(bytes, body))
      return true;
  return false;
}
