//===- Shapes.h - Ops that move elements without computing ------*- C++ -*-===//
//
// Reshapes, slices and other view ops in linalg-on-tensors form: `tensor` ops and `linalg.transpose`. They preserve
// known elements (Elements.h).
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_SHAPES_H
#define SACCADE_IMPORT_COMMON_SHAPES_H

#include "saccade/Import/Common/Structured.h"

namespace saccade::frontend {

/// Reshapes the tensor to `extents`. Dimensions that are provably unchanged stay separate; the others are collapsed and
/// expanded.
mlir::Value reshape(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<mlir::OpFoldResult> extents);

/// Drops dimensions of extent 1.
mlir::Value squeeze(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<int64_t> dims);
/// Inserts dimensions of extent 1 at positions `dims` of the result, in ascending order.
mlir::Value unsqueeze(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<int64_t> dims);

/// Result dimension i is dimension permutation[i] of the tensor.
mlir::Value transpose(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<int64_t> permutation);

/// Elements offset, offset + step, … of each dimension. Steps may be negative.
mlir::Value slice(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<mlir::OpFoldResult> offsets,
                  llvm::ArrayRef<mlir::OpFoldResult> sizes, llvm::ArrayRef<int64_t> steps);

/// The first elements of each dimension, `sizes` of them. A call is refused if an open extent has fewer.
mlir::Value firstOf(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<mlir::OpFoldResult> sizes);

/// Elements first, first + step, … of the last dimension.
mlir::Value sliceLastDim(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, mlir::OpFoldResult first,
                         mlir::OpFoldResult count, int64_t step = 1);
inline mlir::Value sliceLastDim(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, int64_t first, int64_t count,
                                int64_t step = 1) {
  return sliceLastDim(b, tensor, b.getIndexAttr(first), b.getIndexAttr(count), step);
}

/// The slice at `index` along `axis`, without that dimension.
mlir::Value selectIndex(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, int64_t axis, int64_t index);

/// Concatenates tensors along `dim`; their types may differ only in that extent.
mlir::Value concat(mlir::ImplicitLocOpBuilder &b, mlir::ValueRange tensors, int64_t dim);

/// Broadcasts the tensor to `extents` with a structured op that copies.
mlir::Value broadcastTo(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<mlir::OpFoldResult> extents);

/// Places dimension i of the tensor at dimension dims[i] of the result and broadcasts the other dimensions and those of
/// extent 1. The caller must check the extents.
mlir::Value broadcastAlong(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor,
                           llvm::ArrayRef<mlir::OpFoldResult> extents, llvm::ArrayRef<int64_t> dims);

/// Pads each dimension with `before` and `after` elements of `value`; negative numbers crop.
mlir::Value pad(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<mlir::OpFoldResult> before,
                llvm::ArrayRef<mlir::OpFoldResult> after, mlir::Value value);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_SHAPES_H
