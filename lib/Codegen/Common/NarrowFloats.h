//===- NarrowFloats.h - Conversions of f16 and floats of 8 bits ---*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_COMMON_NARROWFLOATS_H
#define SACCADE_LIB_CODEGEN_COMMON_NARROWFLOATS_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/PatternMatch.h"

namespace saccade {

/// Whether `element` is a float of 8 bits that programs may have.
inline bool isF8(mlir::Type element) { return mlir::isa<mlir::Float8E4M3FNType, mlir::Float8E5M2Type>(element); }

/// The factor by which `emitWidenF8` results are too small: 256 for f8E4M3FN, whose exponents have a smaller bias than
/// those of f16, and 1 for f8E5M2.
float widenedF8Factor(mlir::Type element);

/// Converts f8E4M3FN or f8E5M2, a scalar or a vector, to f32, divided by `widenedF8Factor`. Exact; NaN stays NaN.
mlir::Value emitWidenF8(mlir::OpBuilder &b, mlir::Location loc, mlir::Value narrow);

/// Adds patterns that replace conversions from and to floats of 8 bits by integer arithmetic, and those from f32 to f16
/// if the target does not have them.
void populateNarrowFloatPatterns(mlir::RewritePatternSet &patterns, bool hasF16);

} // namespace saccade

#endif // SACCADE_LIB_CODEGEN_COMMON_NARROWFLOATS_H
