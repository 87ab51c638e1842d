//===- Functions.h - Functions of one number that take several ops -*- C++ -*-===//
//
// Activations and their like, on scalars of any floating-point type unless they say otherwise.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_FUNCTIONS_H
#define SACCADE_IMPORT_COMMON_FUNCTIONS_H

#include "saccade/Import/Common/Scalars.h"

namespace saccade::frontend {

/// Of integers, too.
mlir::Value negate(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
mlir::Value absolute(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
/// −1, 0 or 1; of integers, too. NaN stays.
mlir::Value sign(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
/// max(x, 0), of integers, too.
mlir::Value relu(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
mlir::Value square(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
mlir::Value reciprocal(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
mlir::Value isNaN(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
/// 0 for NaN: what a softmax that hides all keys is to give.
mlir::Value zeroForNaN(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
/// Of a condition.
mlir::Value logicalNot(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);

/// x where it is not negative, else `low`.
mlir::Value whereNegative(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value low);
/// α (e^x − 1) where x is negative.
mlir::Value elu(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, double alpha);
mlir::Value sigmoid(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
/// x · sigmoid(α x)
mlir::Value swish(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, double alpha);
/// log(1 + e^x) as max(x, 0) + log1p(e^−|x|), which does not overflow.
mlir::Value softplus(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
/// x/2 (1 + erf(x/√2)), or Hendrycks and Gimpel's approximation of it by tanh.
mlir::Value gelu(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, bool byTanh);

/// base to the power of `exponent`, the number that it is known to be or else the value, of any type; the result has
/// the base's type. Exponents that models write become what they mean. Integers to the power of integers are exact
/// modulo 2^bits; a negative exponent gives 1 / base cut off towards 0, and 0 where the base is 0.
mlir::Value power(mlir::OpBuilder &b, mlir::Location loc, mlir::Value base, mlir::Value exponent,
                  std::optional<double> known = std::nullopt);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_FUNCTIONS_H
