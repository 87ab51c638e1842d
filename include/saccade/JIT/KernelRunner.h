//===- KernelRunner.h - Who runs the kernels of a program ---------*- C++ -*-===//
#ifndef SACCADE_JIT_KERNELRUNNER_H
#define SACCADE_JIT_KERNELRUNNER_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>

namespace saccade {

/// What stands in for a GPU. The host code of a program that was compiled for one asks it to run kernels and for memory;
/// what the host code has in its hands are addresses on the device.
class KernelRunner {
public:
  virtual ~KernelRunner() = default;

  /// Runs `ctas` CTAs of the kernel `name`, whose parameters are `words`, with `sharedBytes` of dynamic shared memory.
  /// A failure is remembered by the runner: the host code goes on.
  virtual void launch(llvm::StringRef name, llvm::ArrayRef<int64_t> params, int64_t ctas, int64_t sharedBytes) = 0;
  virtual void *allocate(int64_t bytes) = 0;
  virtual void release(void *memory) = 0;
};

/// While it lives, programs that this thread calls run their kernels on `runner`.
class ScopedKernelRunner {
public:
  explicit ScopedKernelRunner(KernelRunner &runner);
  ~ScopedKernelRunner();
  ScopedKernelRunner(const ScopedKernelRunner &) = delete;
  ScopedKernelRunner &operator=(const ScopedKernelRunner &) = delete;

private:
  KernelRunner *before;
};

} // namespace saccade

#endif // SACCADE_JIT_KERNELRUNNER_H
