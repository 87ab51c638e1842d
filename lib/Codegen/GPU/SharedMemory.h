//===- SharedMemory.h - Allocation of shared memory ---------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SHAREDMEMORY_H
#define SACCADE_LIB_CODEGEN_GPU_SHAREDMEMORY_H

#include "Emitter.h"

namespace saccade::device {

/// Allocates `count` elements of static shared memory, 16-byte aligned, for the kernel at the insertion point.
mlir::Value allocateShared(Emitter &e, mlir::Type element, int64_t count);

/// Returns `count` elements of static shared memory, 16-byte aligned. All calls in a kernel with the same `role`, type
/// and count return the same memory, so barriers must separate its users.
mlir::Value getShared(Emitter &e, llvm::StringRef role, mlir::Type element, int64_t count);

/// Returns the bytes of static shared memory of a kernel.
int64_t getStaticSharedBytes(mlir::func::FuncOp kernel);

/// Returns the start of dynamic shared memory, a multiple of `alignment`, and makes the launch provide at least `bytes`
/// bytes. All calls in a kernel return the same memory and use the same alignment.
mlir::Value getDynamicShared(Emitter &e, int64_t bytes, int64_t alignment = 128);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SHAREDMEMORY_H
