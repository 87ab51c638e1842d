//===- GradientFunction.h - The gradient function of a function ----*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_DERIVATIVES_GRADIENTFUNCTION_H
#define SACCADE_DIALECT_ATTN_DERIVATIVES_GRADIENTFUNCTION_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace saccade::attn {

/// Function attribute that requests a gradient function.
inline constexpr llvm::StringLiteral gradientAttr = "attn.gradient";
/// Argument attribute: the gradient function returns no gradient of this argument.
inline constexpr llvm::StringLiteral noGradientAttr = "attn.no_gradient";

/// Creates the function `NAME_gradient` after `function`, which has one block and no calls.
///
/// First the log-sum-exp of each attention of `function` becomes a further result, unless it is one. The arguments of
/// the new function are those of `function`, its results, and a gradient of each original float result, of its type.
/// It returns a gradient of each float argument without `attn.no_gradient`: of the type of a tensor, or of rank 0 for a
/// scalar. Fails with a diagnostic that names the function and an op without a rule.
mlir::FailureOr<mlir::func::FuncOp> createGradientFunction(mlir::func::FuncOp function);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_DERIVATIVES_GRADIENTFUNCTION_H
