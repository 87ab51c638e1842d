//===- Kernels.h - What a kernel promises and asks of its launch --*- C++ -*-===//
//
// The few conventions that code generation, target and runtime share.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_KERNELS_H
#define SACCADE_SUPPORT_KERNELS_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>

namespace saccade {

/// Every kernel runs with as many threads a CTA; a CTA is one work item of a task.
inline constexpr int64_t threadsPerCTA = 128;

/// On a kernel: the bytes of dynamic shared memory that it wants, i64; none without it.
inline constexpr llvm::StringLiteral sharedBytesAttr = "attn.shared_bytes";

/// On a task or a kernel: which family its attention belongs to, a string: "v4 blocked, f32 multiply-add", "sm_80".
inline constexpr llvm::StringLiteral familyAttr = "attn.family";

/// On a function of the device module: it is a kernel.
inline constexpr llvm::StringLiteral kernelAttr = "attn.kernel";

/// The device module of a program.
inline constexpr llvm::StringLiteral deviceModule = "saccade_device";

} // namespace saccade

#endif // SACCADE_SUPPORT_KERNELS_H
