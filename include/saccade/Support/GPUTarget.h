//===- GPUTarget.h - The GPU architectures code is generated for -*- C++ -*-===//
//
// One row an architecture, as for processors.
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
  llvm::StringRef name;     ///< as given to --target and to ptxas: "sm_80"
  llvm::StringRef features; ///< LLVM feature string: the version of PTX
  bool hasAsyncCopy;        ///< cp.async, and mma.sync m16n8k16 of f16 and bf16
  int64_t sharedBytes;      ///< of shared memory that a CTA can have
};

/// The architecture of that name, or null.
const GPUTarget *lookupGPUTarget(llvm::StringRef name);

/// The same for a pass: where there is no such architecture, an error at `op` that names those there are.
const GPUTarget *requireGPUTarget(mlir::Operation *op, llvm::StringRef name);

/// All names that `lookupGPUTarget` knows, for messages: "sm_75, sm_80".
llvm::StringRef gpuTargetNames();

} // namespace saccade

#endif // SACCADE_SUPPORT_GPUTARGET_H
