//===- Scalars.h - Scalar arithmetic on any element type --------*- C++ -*-===//
//
// Type-generic scalar ops that build the matching `arith` or `math` op for floating-point or integer operands and fold
// constants. Integers are signed unless a parameter states otherwise.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_SCALARS_H
#define SACCADE_IMPORT_COMMON_SCALARS_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"

namespace saccade::frontend {

using ScalarBuilder = llvm::function_ref<mlir::Value(mlir::OpBuilder &b, mlir::Location loc, mlir::ValueRange inputs)>;

/// A constant of `type`: integer, index or floating point.
mlir::Value makeNumber(mlir::OpBuilder &b, mlir::Location loc, mlir::Type type, double value);
/// The same as an attribute.
mlir::TypedAttr numberAttr(mlir::Type type, double value);
/// The lowest or highest value of `type`; −∞ or +∞ for floating point.
mlir::TypedAttr extremeAttr(mlir::Type type, bool largest);

mlir::Value add(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value y);
mlir::Value sub(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value y);
mlir::Value mul(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value y);
/// The quotient; integers truncate towards 0, and division by 0 gives an unspecified value.
mlir::Value div(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value y);
/// The remainder with the sign of `y`, or of `x` if `truncated` is set.
mlir::Value mod(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value y, bool truncated);
/// The larger and the smaller operand; NaN if either is NaN.
mlir::Value maximum(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value y);
mlir::Value minimum(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value y);
/// `predicate` is a signed integer predicate; floating-point operands use the ordered equivalent, except for `ne`,
/// which is unordered.
mlir::Value compare(mlir::OpBuilder &b, mlir::Location loc, mlir::arith::CmpIPredicate predicate, mlir::Value x,
                    mlir::Value y);
mlir::Value select(mlir::OpBuilder &b, mlir::Location loc, mlir::Value condition, mlir::Value x, mlir::Value y);

/// Converts `x` to `type`: i1 becomes 0 or 1, nonzero values become true, floating point truncates towards 0.
mlir::Value convert(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Type type);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_SCALARS_H
