//===- Scalars.h - Arithmetic on scalars of any type --------------*- C++ -*-===//
//
// What frontends say of elements without their type, an addition of numbers or of integers, in `arith` and `math`.
// Constants fold as they are made. Integers are signed, but for those that an argument says are not.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_SCALARS_H
#define SACCADE_IMPORT_COMMON_SCALARS_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"

namespace saccade::frontend {

using ScalarBuilder = llvm::function_ref<mlir::Value(mlir::OpBuilder &b, mlir::Location loc, mlir::ValueRange inputs)>;

/// A number of `type`, integer, index or floating point.
mlir::Value makeNumber(mlir::OpBuilder &b, mlir::Location loc, mlir::Type type, double value);
/// The same as an attribute.
mlir::TypedAttr numberAttr(mlir::Type type, double value);
/// The least number of `type` (−∞ of floating point), or the largest.
mlir::TypedAttr extremeAttr(mlir::Type type, bool largest);

mlir::Value add(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value y);
mlir::Value sub(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value y);
mlir::Value mul(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value y);
/// The quotient, of integers cut off towards 0; where they are divided by 0 it is any number.
mlir::Value div(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value y);
/// The remainder with the sign of `y`, or with that of `x` where `truncated`.
mlir::Value mod(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value y, bool truncated);
/// The larger and the smaller number; NaN where one is.
mlir::Value maximum(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value y);
mlir::Value minimum(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value y);
/// `predicate` is the one of signed integers; of floating point it is the ordered one, but for `ne`.
mlir::Value compare(mlir::OpBuilder &b, mlir::Location loc, mlir::arith::CmpIPredicate predicate, mlir::Value x,
                    mlir::Value y);
mlir::Value select(mlir::OpBuilder &b, mlir::Location loc, mlir::Value condition, mlir::Value x, mlir::Value y);

/// The number as one of `type`: i1 is 0 or 1, and to i1 all but 0 is true; floating point is cut off towards 0.
mlir::Value convert(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Type type);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_SCALARS_H
