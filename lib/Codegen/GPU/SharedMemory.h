//===- SharedMemory.h - What the threads of a CTA share -----------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SHAREDMEMORY_H
#define SACCADE_LIB_CODEGEN_GPU_SHAREDMEMORY_H

#include "Emitter.h"

namespace saccade::device {

/// `count` elements of static shared memory, aligned to 16 bytes, for the kernel that is being built.
mlir::Value allocateShared(Emitter &e, mlir::Type element, int64_t count);

/// `bytes` bytes of dynamic shared memory from its beginning, aligned to 128, which the launch provides. All uses of a
/// kernel share them.
mlir::Value getDynamicShared(Emitter &e, int64_t bytes);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SHAREDMEMORY_H
