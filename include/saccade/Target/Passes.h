//===- Passes.h - The passes of the target stage ------------------*- C++ -*-===//
#ifndef SACCADE_TARGET_PASSES_H
#define SACCADE_TARGET_PASSES_H

#include "mlir/Pass/Pass.h"

namespace saccade {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "saccade/Target/Passes.h.inc"
} // namespace saccade

#endif // SACCADE_TARGET_PASSES_H
