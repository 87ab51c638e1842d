//===- Views.h - Slices, ranges and fills in frontend conventions -*- C++ -*-===//
//
// Handles shapes with an inferred extent (−1), bounds that count from the end and clamp, ranges and fills, and lowers
// them to Shapes.h.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_VIEWS_H
#define SACCADE_IMPORT_COMMON_VIEWS_H

#include "saccade/Import/Common/Frontend.h"
#include "saccade/Import/Common/Shapes.h"

namespace saccade::frontend {

/// Reshapes the tensor to the extents `to`, one of which may be −1 (inferred). Emits an error if the element counts
/// differ.
mlir::FailureOr<mlir::Value> reshapeInferred(FrontendOp &op, mlir::Value tensor, Extents to);

/// Bounds of a slice along `axis`: start, start + step, … before `end`. Negative bounds count from the end;
/// out-of-range bounds are clamped.
struct SliceBounds {
  int64_t axis;
  mlir::OpFoldResult start, end;
  int64_t step = 1;
};
/// Offsets, sizes and steps of a slice, per dimension.
struct Slice {
  Extents offsets, sizes;
  llvm::SmallVector<int64_t> steps;
};
mlir::FailureOr<Slice> computeSlice(FrontendOp &op, mlir::Value tensor, llvm::ArrayRef<SliceBounds> bounds);
mlir::FailureOr<mlir::Value> sliceBetween(FrontendOp &op, mlir::Value tensor, llvm::ArrayRef<SliceBounds> bounds);

/// Splits the tensor into parts of these sizes along `axis`; emits an error if they do not add up to the extent.
mlir::LogicalResult splitInto(FrontendOp &op, mlir::Value tensor, int64_t axis, llvm::ArrayRef<int64_t> sizes,
                              llvm::SmallVectorImpl<mlir::Value> &results);

/// The range start, start + step, … before `end`, converted to `element`.
mlir::FailureOr<mlir::Value> makeRange(FrontendOp &op, mlir::OpFoldResult start, mlir::OpFoldResult end,
                                       mlir::OpFoldResult step, mlir::Type element);

/// Repeats the tensor along each dimension, or along new dimensions in front. Emits an error for fewer counts than
/// dimensions, negative counts, and results of more than `maxTensorElements`.
mlir::FailureOr<mlir::Value> tile(FrontendOp &op, mlir::Value tensor, llvm::ArrayRef<mlir::OpFoldResult> repeats);

/// A tensor filled with `value`; small ones have known elements.
mlir::Value filled(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<mlir::OpFoldResult> extents, mlir::TypedAttr value);

/// Keeps the upper or lower triangle of a batch of matrices relative to `diagonal` and sets the rest to 0.
mlir::FailureOr<mlir::Value> keepTriangle(FrontendOp &op, mlir::Value tensor, mlir::OpFoldResult diagonal,
                                          bool keepsUpper);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_VIEWS_H
