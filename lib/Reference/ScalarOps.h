//===- ScalarOps.h - Evaluation of scalar ops ----------------------*- C++ -*-===//
//
// Maps arith, math and affine ops to functions on f64 and i64 scalars. Integers wrap at their declared width; rounding
// to the declared float type is done by the caller.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_REFERENCE_SCALAROPS_H
#define SACCADE_REFERENCE_SCALAROPS_H

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Operation.h"
#include "saccade/Reference/Tensor.h"
#include <functional>

namespace saccade::reference {

/// Null on success, else an error message; empty if the error has been reported already.
using Problem = const char *;
/// Computes a result from the operands in order.
using ScalarFunction = std::function<Problem(const Scalar *operands, Scalar &result)>;

/// The function of result `result` of `op`; empty if `op` is not a supported scalar op. Elementwise ops on tensors
/// have the function of their elements. Poison (an out-of-range conversion or shift) becomes an arbitrary value rather
/// than an error, since a select may discard it.
ScalarFunction scalarFunction(mlir::Operation *op, unsigned result = 0);
ScalarFunction floatFunction(mlir::Operation *op, unsigned result);
ScalarFunction integerFunction(mlir::Operation *op);
/// The same for integer ops with two results, such as the halves of a product.
ScalarFunction wideIntegerFunction(mlir::Operation *op, unsigned result);

/// The value of a scalar constant attribute; fails for other attributes.
mlir::FailureOr<Scalar> scalarOf(mlir::Attribute attribute);

/// Evaluates `expr` at `dims` and `symbols`. Divisors must be positive.
int64_t evaluateAffine(mlir::AffineExpr expr, llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<int64_t> symbols = {});

/// Wraps `value` to the width of `type` and sign-extends it; 0 or 1 for i1.
int64_t wrapTo(mlir::Type type, int64_t value);

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_SCALAROPS_H
