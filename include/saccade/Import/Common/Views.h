//===- Views.h - Shapes as graphs ask for them --------------------*- C++ -*-===//
//
// Shapes with an open extent, bounds that count from the end and may lie outside, ranges and fills: what translators
// have before they can use Shapes.h.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_VIEWS_H
#define SACCADE_IMPORT_COMMON_VIEWS_H

#include "saccade/Import/Common/Frontend.h"
#include "saccade/Import/Common/Shapes.h"

namespace saccade::frontend {

/// The tensor reshaped to `extents`, of which one may be −1: whatever is left. Refuses a shape of other size.
mlir::FailureOr<mlir::Value> reshapeInferred(FrontendOp &op, mlir::Value tensor, Extents extents);

/// Elements start, start + step, ... before `end` along `axis`. Bounds may be negative, then counted from the end, and
/// lie outside, then they are the nearest end.
struct SliceBounds {
  int64_t axis;
  mlir::OpFoldResult start, end;
  int64_t step = 1;
};
/// Where a part of a tensor lies, dimension by dimension.
struct Slice {
  Extents offsets, sizes;
  llvm::SmallVector<int64_t> steps;
};
mlir::FailureOr<Slice> computeSlice(FrontendOp &op, mlir::Value tensor, llvm::ArrayRef<SliceBounds> bounds);
mlir::FailureOr<mlir::Value> sliceBetween(FrontendOp &op, mlir::Value tensor, llvm::ArrayRef<SliceBounds> bounds);

/// Parts of these sizes along `axis`; refuses them where they are not all of it.
mlir::LogicalResult splitInto(FrontendOp &op, mlir::Value tensor, int64_t axis, llvm::ArrayRef<int64_t> sizes,
                              llvm::SmallVectorImpl<mlir::Value> &results);

/// start, start + step, ... before `end`, integers converted to `element`.
mlir::FailureOr<mlir::Value> makeRange(FrontendOp &op, mlir::OpFoldResult start, mlir::OpFoldResult end,
                                       mlir::OpFoldResult step, mlir::Type element);

/// A tensor of one number; its elements are known one by one where they are few.
mlir::Value filled(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<mlir::OpFoldResult> extents, mlir::TypedAttr value);

/// Elements on one side of a diagonal of matrices, 0 on the other.
mlir::FailureOr<mlir::Value> keepTriangle(FrontendOp &op, mlir::Value tensor, mlir::OpFoldResult diagonal, bool keepsUpper);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_VIEWS_H
