//===- Kernels.h - Conventions of kernels and their launches ------*- C++ -*-===//
//
// Attribute names and constants that code generation, the target stage and the runtime share.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_KERNELS_H
#define SACCADE_SUPPORT_KERNELS_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>

namespace saccade {

/// Threads per CTA of every kernel; a CTA processes one work item of a task.
inline constexpr int64_t threadsPerCTA = 128;

/// On a kernel: its dynamic shared memory in bytes, i64; 0 if absent.
inline constexpr llvm::StringLiteral sharedBytesAttr = "attn.shared_bytes";

/// On a task or a kernel: the kernel family of its attention, a string: "v4 packed, f32 multiply-add", "sm_80".
inline constexpr llvm::StringLiteral familyAttr = "attn.family";

/// On a function of the device module: marks a kernel.
inline constexpr llvm::StringLiteral kernelAttr = "attn.kernel";

/// The symbol name of a program's device module.
inline constexpr llvm::StringLiteral deviceModule = "saccade_device";

} // namespace saccade

#endif // SACCADE_SUPPORT_KERNELS_H
