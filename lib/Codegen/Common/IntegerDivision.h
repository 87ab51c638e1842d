//===- IntegerDivision.h - Divisions that nobody asked for --------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_COMMON_INTEGERDIVISION_H
#define SACCADE_LIB_CODEGEN_COMMON_INTEGERDIVISION_H

#include "mlir/IR/Builders.h"

namespace saccade {

/// Division and remainder of integers: undefined for a divisor of 0, also for pairs that the mask hides and regions are
/// evaluated for all the same.
bool isIntegerDivision(mlir::Operation *op);

/// `divisor`, a number or a vector, but 1 where it is 0.
mlir::Value guardDivisor(mlir::OpBuilder &b, mlir::Location loc, mlir::Value divisor);

} // namespace saccade

#endif // SACCADE_LIB_CODEGEN_COMMON_INTEGERDIVISION_H
