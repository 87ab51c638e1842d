//===- Linker.h - Object code into this process -------------------*- C++ -*-===//
#ifndef SACCADE_LIB_JIT_LINKER_H
#define SACCADE_LIB_JIT_LINKER_H

#include "saccade/Runtime/Entry.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

namespace saccade {

/// Links an object of ours into this process. It finds the runtime that this library carries, and libm in the process.
llvm::Expected<std::unique_ptr<llvm::orc::LLJIT>> linkObject(std::unique_ptr<llvm::MemoryBuffer> object);

/// What stands for the runtime's functions of include/saccade/Runtime/CUDA.h: the thread's KernelRunner where it has
/// one, else the GPU.
SaccadeStatus callOnDevice(const SaccadeEntry *entry, int32_t device, void **arguments, const char **message);
void launchKernel(const char *name, const int64_t *params, int64_t count, int64_t ctas, int64_t sharedBytes);
void *allocateOnDevice(int64_t bytes);
void releaseOnDevice(void *memory);

} // namespace saccade

#endif // SACCADE_LIB_JIT_LINKER_H
