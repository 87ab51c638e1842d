//===- Functions.h - Scalar functions ---------------------------*- C++ -*-===//
//
// Activations and similar functions on floating-point scalars, unless stated otherwise.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_FUNCTIONS_H
#define SACCADE_IMPORT_COMMON_FUNCTIONS_H

#include "saccade/Import/Common/Scalars.h"

namespace saccade::frontend {

/// negate, absolute, sign and relu also accept integers.
mlir::Value negate(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
mlir::Value absolute(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
/// −1, 0 or 1; NaN is propagated.
mlir::Value sign(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
/// max(x, 0)
mlir::Value relu(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
mlir::Value square(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
mlir::Value reciprocal(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
mlir::Value isNaN(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
/// 0 if x is NaN, else x: the result for a fully masked softmax row.
mlir::Value zeroForNaN(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
/// Negates an i1.
mlir::Value logicalNot(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);

/// `low` if x is negative, else x.
mlir::Value whereNegative(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value low);
/// α (e^x − 1) if x is negative, else x.
mlir::Value elu(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, double alpha);
mlir::Value sigmoid(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
/// x · sigmoid(α x)
mlir::Value swish(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, double alpha);
/// log(1 + e^x) as max(x, 0) + log1p(e^−|x|), which does not overflow.
mlir::Value softplus(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x);
/// x/2 (1 + erf(x/√2)), or the tanh approximation of Hendrycks and Gimpel (2016).
mlir::Value gelu(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, bool byTanh);

/// base ^ exponent in the type of `base`; `known` is the exponent if it is constant. Common constant exponents (0.5, 2,
/// 3) become cheaper ops. Integer powers are exact modulo 2^bits; a negative exponent gives 1 / base truncated towards
/// 0, and 0 for a base of 0.
mlir::Value power(mlir::OpBuilder &b, mlir::Location loc, mlir::Value base, mlir::Value exponent,
                  std::optional<double> known = std::nullopt);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_FUNCTIONS_H
