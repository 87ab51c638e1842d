//===- KernelRunner.cpp - Who runs the kernels of a program -------------------===//
//
// The functions that host code calls, in C, for the runner of the calling thread.
//
//===----------------------------------------------------------------------===//
#include "saccade/JIT/KernelRunner.h"
#include "Linker.h"
#include <cassert>

using namespace saccade;

static thread_local KernelRunner *current = nullptr;

UseRunner::UseRunner(KernelRunner &runner) : before(current) { current = &runner; }
UseRunner::~UseRunner() { current = before; }

static KernelRunner &runner() {
  assert(current && "a program for a device is called without one");
  return *current;
}

void saccade::launchKernel(const char *name, const int64_t *words, int64_t count, int64_t ctas, int64_t sharedBytes) {
  runner().launch(name, {words, static_cast<size_t>(count)}, ctas, sharedBytes);
}
void *saccade::allocateOnDevice(int64_t bytes) { return runner().allocate(bytes); }
void saccade::releaseOnDevice(void *memory) { runner().release(memory); }
