//===- Kernels.h - What a kernel promises and asks of its launch --*- C++ -*-===//
//
// The few conventions that code generation, target and runtime share.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_KERNELS_H
#define SACCADE_SUPPORT_KERNELS_H

#include "llvm/ADT/StringRef.h"

namespace saccade {

/// On a task or a kernel: which family its attention belongs to, a string: "blocked, f32 multiply-add", "sm_80".
inline constexpr llvm::StringLiteral familyAttr = "attn.family";

} // namespace saccade

#endif // SACCADE_SUPPORT_KERNELS_H
