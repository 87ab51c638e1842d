//===- Reductions.h - Reductions, norms and scans ---------------*- C++ -*-===//
//
// 16-bit floats are accumulated in f32.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_REDUCTIONS_H
#define SACCADE_IMPORT_COMMON_REDUCTIONS_H

#include "saccade/Import/Common/Frontend.h"
#include "saccade/Import/Common/Structured.h"

namespace saccade::frontend {

/// A reduction: combine(before(x), ...) over the elements, starting at `start`, then `after` on the result.
struct Reduction {
  enum Start { Zero, One, Lowest, Highest } start;
  mlir::Value (*combine)(mlir::OpBuilder &, mlir::Location, mlir::Value, mlir::Value);
  mlir::Value (*before)(mlir::OpBuilder &, mlir::Location, mlir::Value) = nullptr;
  mlir::Value (*after)(mlir::OpBuilder &, mlir::Location, mlir::Value) = nullptr;
  bool isMean = false;
};

/// The type in which values of `element` are accumulated.
mlir::Type getAccumulatorType(mlir::Type element);

/// Reduces `dims`, which are kept with extent 1 if `keepDims` is set. The element type is unchanged.
mlir::Value reduceBy(mlir::ImplicitLocOpBuilder &b, const Reduction &reduction, mlir::Value tensor,
                     llvm::ArrayRef<int64_t> dims, bool keepDims);

/// log Σ e^x computed as m + log Σ e^(x − m), where m is the maximum, or 0 if that is infinite.
mlir::Value logSumExp(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<int64_t> dims, bool keepDims);

/// Σ (x − mean)² / (n − correction) over `dims`.
mlir::Value variance(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<int64_t> dims, bool keepDims,
                     double correction);

/// x − max − log Σ e^(x − max)
mlir::Value logSoftmax(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, int64_t axis);

/// Inclusive prefix sum along `axis`, or exclusive if `isExclusive` is set; suffix sum if `isReversed` is set.
/// Implemented as one masked reduction per element.
mlir::Value cumulativeSum(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, int64_t axis, bool isExclusive,
                          bool isReversed);

/// Results of `normalize`; `mean` is null if no mean is subtracted.
struct Norm {
  mlir::Value result, mean, inverse;
};

/// LayerNorm over `dims`: (x − mean) / √(variance + ε) · scale + bias; RMSNorm without `subtractsMean`: x / √(mean of
/// squares + ε) · scale. Computed in f32 or wider. Scale and bias may be null and are broadcast to the tensor.
/// `inverse` is 1 / √(variance + ε).
Norm normalize(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<int64_t> dims, bool subtractsMean,
               double epsilon, mlir::Value scale, mlir::Value bias);

/// BatchNorm in inference: (x − mean) / √(variance + ε) · scale + bias for the channels of a tensor [n, c, ...]. All
/// parameters are [c]; scale and bias may be null. Computed in f32 or wider. Emits an error for other shapes.
mlir::FailureOr<mlir::Value> normalizeChannels(FrontendOp &op, mlir::Value tensor, mlir::Value mean,
                                               mlir::Value variance, double epsilon, mlir::Value scale,
                                               mlir::Value bias);

/// GroupNorm: LayerNorm over groups of adjacent channels of a tensor [n, c, ...], then scale and bias [c], which may be
/// null. Emits an error for other shapes.
mlir::FailureOr<mlir::Value> normalizeGroups(FrontendOp &op, mlir::Value tensor, int64_t groups, double epsilon,
                                             mlir::Value scale, mlir::Value bias);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_REDUCTIONS_H
