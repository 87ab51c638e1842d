//===- Passes.h - Raising plain ops to attention ----------------*- C++ -*-===//
#ifndef SACCADE_IMPORT_RAISE_PASSES_H
#define SACCADE_IMPORT_RAISE_PASSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace saccade {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "saccade/Import/Raise/Passes.h.inc"

/// Prefix of the remark on a softmax that was not raised; the reason follows.
inline constexpr llvm::StringLiteral notRaised = "not raised to attention: ";
} // namespace saccade

#endif // SACCADE_IMPORT_RAISE_PASSES_H
