//===- Script.h - Steps of the compiler in scripts ----------------*- C++ -*-===//
//
// A schedule as a script of MLIR's transform dialect: tiling and code generation are ops of this dialect, which call
// the functions of the passes.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SCRIPT_SCRIPT_H
#define SACCADE_SCRIPT_SCRIPT_H

#include "mlir/Pass/Pass.h"

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace saccade {

#define GEN_PASS_DECL
#include "saccade/Script/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "saccade/Script/Passes.h.inc"

/// Registers the transform dialect, its extensions for the dialects of programs, and the ops `transform.attn.`.
void registerTransformOps(mlir::DialectRegistry &registry);

} // namespace saccade

#endif // SACCADE_SCRIPT_SCRIPT_H
