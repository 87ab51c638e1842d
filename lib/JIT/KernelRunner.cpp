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

void saccade::launchKernel(const char *name, const int64_t *params, int64_t count, int64_t ctas, int64_t threads,
                           int64_t sharedBytes) {
  if (!current)
    return saccade_launch(name, params, count, ctas, threads, sharedBytes);
  current->launch(name, {params, static_cast<size_t>(count)}, ctas, threads, sharedBytes);
}

int32_t saccade::encodeTensorMap(void *map, const int64_t *buffer, const int64_t *plan) {
  if (!current)
    return saccade_encode_tensor_map(map, buffer, plan);
  runtime::BulkTensor tensor;
  return tensor.describe(buffer, plan) && current->encode(tensor, map);
}

void *saccade::findDeviceConstant(const char *name) {
  return current ? current->findConstant(name) : saccade_device_constant(name);
}

void *saccade::allocateCounter() { return current ? current->allocateCounter() : saccade_device_counter(); }

int64_t saccade::countMultiprocessors() { return current ? current->multiprocessors() : saccade_multiprocessors(); }

void *saccade::allocateOnDevice(int64_t bytes) {
  return current ? current->allocate(bytes) : saccade_device_allocate(bytes);
}

void saccade::releaseOnDevice(void *memory) { current ? current->release(memory) : saccade_device_release(memory); }
