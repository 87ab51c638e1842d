//===- StageAttributes.h - Attributes of a program between stages -*- C++ -*-===//
#ifndef SACCADE_SUPPORT_STAGEATTRIBUTES_H
#define SACCADE_SUPPORT_STAGEATTRIBUTES_H

#include "llvm/ADT/StringRef.h"

namespace saccade {

/// Attributes of the module: the last stage that the program has passed, and the target that it was compiled for.
inline constexpr llvm::StringLiteral stageAttr = "attn.stage", targetAttr = "attn.target";

/// Attribute of the module while a script runs between two stages: the second one.
inline constexpr llvm::StringLiteral nextStageAttr = "attn.next_stage";

} // namespace saccade

#endif // SACCADE_SUPPORT_STAGEATTRIBUTES_H
