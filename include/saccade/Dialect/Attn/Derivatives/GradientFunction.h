//===- GradientFunction.h - Functions of derivatives ---------------*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_DERIVATIVES_GRADIENTFUNCTION_H
#define SACCADE_DIALECT_ATTN_DERIVATIVES_GRADIENTFUNCTION_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace saccade::attn {

/// Function attribute that requests a gradient function.
inline constexpr llvm::StringLiteral gradientAttr = "attn.gradient";
/// Function attribute that requests a function of tangents (a Jacobian-vector product).
inline constexpr llvm::StringLiteral jvpAttr = "attn.jvp";
/// Argument attribute: the gradient function returns no gradient of this argument, the tangent function takes no
/// tangent.
inline constexpr llvm::StringLiteral noGradientAttr = "attn.no_gradient";

/// Creates the function `NAME_gradient` after `function`, which has one block and no calls.
///
/// First the log-sum-exp of each attention of `function` becomes a further result, unless it is one. The arguments of
/// the new function are those of `function`, its results, and a gradient of each original float result, of its type.
/// It returns a gradient of each float argument without `attn.no_gradient`: of the type of a tensor, or of rank 0 for a
/// scalar. Fails with a diagnostic that names the function and an op without a rule.
mlir::FailureOr<mlir::func::FuncOp> createGradientFunction(mlir::func::FuncOp function);

/// Creates the function `NAME_jvp` after `function`, which has one block and no calls.
///
/// Its arguments are those of `function` and a tangent of each float argument without `attn.no_gradient`, of its type.
/// It returns the results of `function` and a tangent of each float result, of its type. Fails with a diagnostic that
/// names the function and an op without a rule.
mlir::FailureOr<mlir::func::FuncOp> createJvpFunction(mlir::func::FuncOp function);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_DERIVATIVES_GRADIENTFUNCTION_H
