//===- ScalarOps.h - What arith and math ops compute ---------------*- C++ -*-===//
//
// Each scalar op is a function from numbers to a number, in f64 and i64. Rounding to the declared
// float type is the caller's; integers wrap at their declared width here.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_REFERENCE_SCALAROPS_H
#define SACCADE_REFERENCE_SCALAROPS_H

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Operation.h"
#include "saccade/Reference/Tensor.h"
#include <functional>

namespace saccade::reference {

/// Null, or what went wrong; empty where that was reported already.
using Problem = const char *;
/// Computes a result from the operands in order.
using ScalarFunction = std::function<Problem(const Scalar *operands, Scalar &result)>;

/// The function of `op`, which must have one result; empty where `op` is no scalar op that we know. Elementwise ops on
/// tensors have the function of their elements. Values that upstream calls poison (a float that no integer holds, a
/// shift beyond the width) become some value: only its use would be wrong, and a select may drop it.
ScalarFunction scalarFunction(mlir::Operation *op);
ScalarFunction floatFunction(mlir::Operation *op);
ScalarFunction integerFunction(mlir::Operation *op);

/// The value of a constant attribute of type `type`; null attribute kinds that have no single number give failure.
mlir::FailureOr<Scalar> scalarOf(mlir::Attribute attribute);

/// `expr` at the point `dims`, `symbols`. Divisors must be positive.
int64_t evaluateAffine(mlir::AffineExpr expr, llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<int64_t> symbols = {});

/// `value` as an integer of `type`: wrapped at its width and sign-extended; 0 or 1 for i1.
int64_t wrapTo(mlir::Type type, int64_t value);

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_SCALAROPS_H
