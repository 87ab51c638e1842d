//===- Shapes.h - Ops that move elements and compute nothing ------*- C++ -*-===//
//
// Reshapes, slices and their kin in the common form: `tensor` ops and `linalg.transpose`. They keep the knowledge of
// elements one by one (Elements.h) where there is any.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_SHAPES_H
#define SACCADE_IMPORT_COMMON_SHAPES_H

#include "saccade/Import/Common/Structured.h"

namespace saccade::frontend {

/// The tensor with other extents, its elements in the same order. Dimensions that can be told to stay are kept apart,
/// the rest are joined and cut anew.
mlir::Value reshape(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<mlir::OpFoldResult> extents);

/// Drops dimensions of extent 1.
mlir::Value squeeze(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<int64_t> dims);
/// Puts dimensions of extent 1 where they stand in the result; `dims` ascend.
mlir::Value unsqueeze(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<int64_t> dims);

/// Dimension i of the result is dimension permutation[i] of the tensor.
mlir::Value transpose(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<int64_t> permutation);

/// Elements offset, offset + step, ... of each dimension. Steps may be negative.
mlir::Value slice(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<mlir::OpFoldResult> offsets,
                  llvm::ArrayRef<mlir::OpFoldResult> sizes, llvm::ArrayRef<int64_t> steps);

/// Element `index` along `axis`, without that dimension.
mlir::Value selectIndex(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, int64_t axis, int64_t index);

/// Tensors behind each other along `dim`; they are of one type but for that extent.
mlir::Value concat(mlir::ImplicitLocOpBuilder &b, mlir::ValueRange tensors, int64_t dim);

/// The tensor at these extents, which it must broadcast to: a structured op that copies.
mlir::Value broadcastTo(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<mlir::OpFoldResult> extents);

/// The tensor at these extents, its dimension i as dimension dims[i], repeated along the others and along those in
/// which it has the extent 1. Extents must have been checked.
mlir::Value broadcastAlong(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor,
                           llvm::ArrayRef<mlir::OpFoldResult> extents, llvm::ArrayRef<int64_t> dims);

/// `before` and `behind` elements of `value` around each dimension; negative numbers take elements away.
mlir::Value pad(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<mlir::OpFoldResult> before,
                llvm::ArrayRef<mlir::OpFoldResult> behind, mlir::Value value);

/// Arithmetic on extents, folded where they are static.
mlir::OpFoldResult addExtents(mlir::ImplicitLocOpBuilder &b, mlir::OpFoldResult x, mlir::OpFoldResult y);
mlir::OpFoldResult subtractExtents(mlir::ImplicitLocOpBuilder &b, mlir::OpFoldResult x, mlir::OpFoldResult y);
mlir::OpFoldResult multiplyExtents(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<mlir::OpFoldResult> factors);
mlir::OpFoldResult divideExtents(mlir::ImplicitLocOpBuilder &b, mlir::OpFoldResult x, mlir::OpFoldResult y);
/// The quotient of two products; factors of both are left out.
mlir::OpFoldResult divideProducts(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<mlir::OpFoldResult> numerator,
                                  llvm::ArrayRef<mlir::OpFoldResult> denominator);
/// The product where all extents are static and 64 bits hold it.
std::optional<int64_t> countElements(llvm::ArrayRef<mlir::OpFoldResult> extents);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_SHAPES_H
