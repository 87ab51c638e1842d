//===- IntegerDivision.h - Guarding integer divisors --------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_COMMON_INTEGERDIVISION_H
#define SACCADE_LIB_CODEGEN_COMMON_INTEGERDIVISION_H

#include "mlir/IR/Builders.h"

namespace saccade {

/// Whether `op` is an integer division or remainder, which is undefined for a divisor of 0. Regions are evaluated for
/// masked pairs too, so such ops need a guard.
bool isIntegerDivision(mlir::Operation *op);

/// Returns `divisor` (scalar or vector) with zeros replaced by 1.
mlir::Value guardDivisor(mlir::OpBuilder &b, mlir::Location loc, mlir::Value divisor);

} // namespace saccade

#endif // SACCADE_LIB_CODEGEN_COMMON_INTEGERDIVISION_H
