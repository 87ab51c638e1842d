//===- SharedMemory.h - Allocation of shared memory ---------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SHAREDMEMORY_H
#define SACCADE_LIB_CODEGEN_GPU_SHAREDMEMORY_H

#include "Emitter.h"

namespace saccade::device {

/// Allocates `count` elements of static shared memory, 16-byte aligned, for the kernel at the insertion point.
mlir::Value allocateShared(Emitter &e, mlir::Type element, int64_t count);

/// Returns the start of dynamic shared memory, 128-byte aligned, and makes the launch provide at least `bytes` bytes.
/// All calls in a kernel return the same memory.
mlir::Value getDynamicShared(Emitter &e, int64_t bytes);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SHAREDMEMORY_H
