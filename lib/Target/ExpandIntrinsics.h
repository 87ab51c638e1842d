//===- ExpandIntrinsics.h - Generic code for AVX-512 intrinsics ---*- C++ -*-===//
#ifndef SACCADE_LIB_TARGET_EXPANDINTRINSICS_H
#define SACCADE_LIB_TARGET_EXPANDINTRINSICS_H

#include "saccade/Support/CPUTarget.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"

namespace saccade {

/// Replaces the AVX-512 intrinsics of a module for an expanded target, and conversions to bf16 if the target has
/// instructions for them. Fails if an intrinsic has no expansion, or none for its immediates.
llvm::Error expandIntrinsics(llvm::Module &module, const CPUTarget &target);

} // namespace saccade

#endif // SACCADE_LIB_TARGET_EXPANDINTRINSICS_H
