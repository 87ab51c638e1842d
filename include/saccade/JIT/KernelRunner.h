//===- KernelRunner.h - Substitute for a GPU ----------------------*- C++ -*-===//
//
// An interface through which the host code of a GPU program launches its kernels on a simulator instead of the driver.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_JIT_KERNELRUNNER_H
#define SACCADE_JIT_KERNELRUNNER_H

#include "saccade/Runtime/BulkTensor.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>

namespace saccade {

/// Launches kernels and allocates memory for the host code of a GPU program, which handles device addresses only.
class KernelRunner {
public:
  virtual ~KernelRunner() = default;

  /// Runs `ctas` CTAs of `threads` threads of the kernel `name` with the words `params` as parameters and `sharedBytes`
  /// of dynamic shared memory. The runner records a failure; the host code continues.
  virtual void launch(llvm::StringRef name, llvm::ArrayRef<int64_t> params, int64_t ctas, int64_t threads,
                      int64_t sharedBytes) = 0;
  /// Makes a tensor map of 128 bytes. Returns false if the tensor is not supported.
  virtual bool encode(const runtime::BulkTensor &tensor, void *map) = 0;
  /// The device address of a constant of the kernels.
  virtual void *findConstant(llvm::StringRef name) = 0;
  virtual void *allocate(int64_t bytes) = 0;
  /// Frees memory; null is permitted.
  virtual void release(void *memory) = 0;
  /// Allocates a 32-bit counter that is 0.
  virtual void *allocateCounter() = 0;
  /// The number of multiprocessors, at least 1.
  virtual int64_t multiprocessors() = 0;
};

/// Makes GPU programs that this thread calls run their kernels on `runner` during the lifetime of the object.
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
