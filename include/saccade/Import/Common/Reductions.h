//===- Reductions.h - Sums along dimensions, and what is made of them -*- C++ -*-===//
//
// Numbers of 16 bits are summed in f32.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_REDUCTIONS_H
#define SACCADE_IMPORT_COMMON_REDUCTIONS_H

#include "saccade/Import/Common/Structured.h"

namespace saccade::frontend {

/// Σ of what `before` makes of elements, or their maximum and so on; then `after`.
struct Reduction {
  enum Start { Zero, One, Least, Largest } start;
  mlir::Value (*combine)(mlir::OpBuilder &, mlir::Location, mlir::Value, mlir::Value);
  mlir::Value (*before)(mlir::OpBuilder &, mlir::Location, mlir::Value) = nullptr;
  mlir::Value (*after)(mlir::OpBuilder &, mlir::Location, mlir::Value) = nullptr;
  bool isMean = false;
};

/// The type that sums of `element` are made in.
mlir::Type getAccumulatorType(mlir::Type element);

/// Reduces `dims`, which stay with extent 1 where `keep`; the elements have the tensor's type.
mlir::Value reduceBy(mlir::ImplicitLocOpBuilder &b, const Reduction &reduction, mlir::Value tensor,
                     llvm::ArrayRef<int64_t> dims, bool keepDims);

/// log Σ e^x as m + log Σ e^(x − m) with the maximum m, or 0 where that is infinite.
mlir::Value logSumExp(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<int64_t> dims, bool keepDims);

/// Σ (x − mean)² / (n − correction) over `dims`.
mlir::Value variance(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<int64_t> dims, bool keepDims,
                     double correction);

/// x − max − log Σ e^(x − max)
mlir::Value logSoftmax(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, int64_t axis);

/// Sums of all elements up to each one, itself included unless `isExclusive`, or from it on where `isReversed`: a
/// masked sum for each.
mlir::Value cumulativeSum(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, int64_t axis, bool isExclusive,
                          bool isReversed);

/// What a norm gives; `mean` is null where it does not subtract one.
struct Norm {
  mlir::Value result, mean, inverse;
};

/// (x − mean) / √(variance + ε) · scale + bias over `dims`, or without `centres` x / √(mean of squares + ε) · scale, in
/// f32 at least. Scale and bias may be null, and are broadcast to the tensor. The inverse is 1 / √(variance + ε).
Norm normalize(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<int64_t> dims, bool subtractsMean,
               double epsilon, mlir::Value scale, mlir::Value bias);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_REDUCTIONS_H
