//===- GPUTarget.h - The GPU architectures code is generated for -*- C++ -*-===//
//
// The properties of GPU architectures, one table row per architecture.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_GPUTARGET_H
#define SACCADE_SUPPORT_GPUTARGET_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>

namespace mlir {
class Operation;
}

namespace saccade {

/// An NVIDIA architecture.
struct GPUTarget {
  llvm::StringRef name;      ///< as given to --target and to ptxas: "sm_80"
  llvm::StringRef features;  ///< LLVM feature string: the PTX version
  bool hasAsyncCopy = false; ///< cp.async, and mma.sync m16n8k16 of f16 and bf16
  bool hasBulkCopy = false;  ///< bulk copies by tensor maps, mbarrier, wgmma and setmaxnreg, as on sm_90a
  int64_t sharedBytes;       ///< maximum shared memory of a CTA in bytes
  bool isSelected = false;   ///< whether `cuda` selects it; not before its kernels have been run on a GPU
};

/// The architecture `name`, or null.
const GPUTarget *lookupGPUTarget(llvm::StringRef name);

/// The same for passes: an unknown name is an error at `op` that lists the valid names.
const GPUTarget *requireGPUTarget(mlir::Operation *op, llvm::StringRef name);

/// The newest target that is selected for a GPU of a compute capability (80 for 8.0), or null.
const GPUTarget *newestGPUTarget(int64_t capability);

/// The names that `lookupGPUTarget` accepts, for messages: "sm_75, sm_80, ...".
llvm::StringRef gpuTargetNames();

} // namespace saccade

#endif // SACCADE_SUPPORT_GPUTARGET_H
