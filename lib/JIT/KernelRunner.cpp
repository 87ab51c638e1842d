//===- KernelRunner.cpp - Substitute for a GPU --------------------------------===//
//
// The CUDA runtime functions for host code of the JIT: they call the runner of the thread if it has one, else the
// driver.
//
//===----------------------------------------------------------------------===//
#include "saccade/JIT/KernelRunner.h"
#include "Linker.h"
#include "saccade/Runtime/CUDA.h"

using namespace saccade;

static thread_local KernelRunner *current = nullptr;

ScopedKernelRunner::ScopedKernelRunner(KernelRunner &runner) : before(current) { current = &runner; }
ScopedKernelRunner::~ScopedKernelRunner() { current = before; }

SaccadeStatus saccade::callOnDevice(const SaccadeEntry *entry, int32_t device, void **arguments, const char **message) {
  if (!current)
    return saccade_cuda_call(entry, device, arguments, message);
  *message = entry->call(arguments);
  return SaccadeSuccess;
}

void saccade::launchKernel(const char *name, const int64_t *params, int64_t count, int64_t ctas, int64_t sharedBytes) {
  if (!current)
    return saccade_launch(name, params, count, ctas, sharedBytes);
  current->launch(name, {params, static_cast<size_t>(count)}, ctas, sharedBytes);
}

void *saccade::allocateOnDevice(int64_t bytes) {
  return current ? current->allocate(bytes) : saccade_device_allocate(bytes);
}

void saccade::releaseOnDevice(void *memory) { current ? current->release(memory) : saccade_device_release(memory); }
