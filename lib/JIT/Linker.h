//===- Linker.h - Links objects into this process -----------------*- C++ -*-===//
#ifndef SACCADE_LIB_JIT_LINKER_H
#define SACCADE_LIB_JIT_LINKER_H

#include "saccade/Runtime/Entry.h"
#include "saccade/Runtime/Runtime.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

namespace saccade {

/// A compiled object that is linked into this process, with the runtime of this library and the libm of the process.
class LinkedObject {
public:
  static llvm::Expected<std::unique_ptr<LinkedObject>> create(std::unique_ptr<llvm::MemoryBuffer> object);
  ~LinkedObject();

  /// The address of a global symbol.
  llvm::Expected<llvm::orc::ExecutorAddr> lookup(llvm::StringRef name);

private:
  explicit LinkedObject(std::unique_ptr<llvm::orc::ExecutorProcessControl> process);

  std::vector<saccade_task> tasks; ///< whose names are known (TaskTimes.h)
  llvm::orc::ExecutionSession session;
  llvm::orc::ObjectLinkingLayer layer;
  llvm::orc::JITDylib &library;
  std::string reported; ///< errors of the session
};

/// The implementations of include/saccade/Runtime/CUDA.h for linked objects: they call the thread's KernelRunner if it
/// has one, else the runtime.
SaccadeStatus callOnDevice(const SaccadeEntry *entry, int32_t device, void **arguments, const char **message);
void launchKernel(const char *name, const int64_t *params, int64_t count, int64_t ctas, int64_t threads,
                  int64_t sharedBytes);
int32_t encodeTensorMap(void *map, const int64_t *buffer, const int64_t *plan);
void *findDeviceConstant(const char *name);
void *allocateOnDevice(int64_t bytes);
void releaseOnDevice(void *memory);
void *allocateCounter();
int64_t countMultiprocessors();

/// The implementations of include/saccade/Runtime/Runtime.h for linked objects: with the checks of a
/// ScopedMemoryChecks and the times of a ScopedTaskTimes of the thread, if it has one.
int32_t checkedParallelFor(saccade_task task, void *context, int64_t count, int64_t scratchBytes);
void *checkedAllocate(int64_t bytes);
void checkedRelease(void *memory);

} // namespace saccade

#endif // SACCADE_LIB_JIT_LINKER_H
