//===- Passes.h - From plain ops to attention ---------------------*- C++ -*-===//
#ifndef SACCADE_IMPORT_RAISE_PASSES_H
#define SACCADE_IMPORT_RAISE_PASSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace saccade {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "saccade/Import/Raise/Passes.h.inc"

/// What the remark on a softmax that is left begins with; the reason follows.
inline constexpr llvm::StringLiteral notRaised = "not raised to attention: ";
} // namespace saccade

#endif // SACCADE_IMPORT_RAISE_PASSES_H
