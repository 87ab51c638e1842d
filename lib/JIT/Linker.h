//===- Linker.h - Object code into this process -------------------*- C++ -*-===//
#ifndef SACCADE_LIB_JIT_LINKER_H
#define SACCADE_LIB_JIT_LINKER_H

#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

namespace saccade {

/// Links an object of ours into this process. It finds the runtime that this library carries, and libm in the process;
/// with `forDevice` memory is that of the thread's KernelRunner.
llvm::Expected<std::unique_ptr<llvm::orc::LLJIT>> linkObject(std::unique_ptr<llvm::MemoryBuffer> object,
                                                             bool forDevice = false);

/// What host code calls for the thread's KernelRunner.
void launchKernel(const char *name, const int64_t *words, int64_t count, int64_t ctas, int64_t sharedBytes);
void *allocateOnDevice(int64_t bytes);
void releaseOnDevice(void *memory);

} // namespace saccade

#endif // SACCADE_LIB_JIT_LINKER_H
