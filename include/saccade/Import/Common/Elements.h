//===- Elements.h - Small tensors with known elements -----------*- C++ -*-===//
//
// Models compute shapes with small integer tensors: extents are gathered, multiplied and concatenated, and passed to a
// reshape. The elements of such tensors are tracked individually, as constants or scalar SSA values, so that ops that
// take a shape can use them directly.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_ELEMENTS_H
#define SACCADE_IMPORT_COMMON_ELEMENTS_H

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace saccade::frontend {

/// Tensors with more elements are not tracked element by element.
inline constexpr int64_t maxFoldedElements = 64;

/// The elements of `tensor` in row-major order, each a constant or a scalar of its element type; nullopt if the tensor
/// is too large or its elements are unknown. An empty tensor yields an empty list.
std::optional<llvm::SmallVector<mlir::OpFoldResult>> elementsOf(mlir::Value tensor);

/// A tensor with these elements; a constant if all of them are constant.
mlir::Value fromElements(mlir::ImplicitLocOpBuilder &b, mlir::RankedTensorType type,
                         llvm::ArrayRef<mlir::OpFoldResult> elements);

/// An element as an SSA value; materializes constants.
mlir::Value toValue(mlir::ImplicitLocOpBuilder &b, mlir::OpFoldResult element);

/// Integer elements as extents: index attributes or values of type index.
llvm::SmallVector<mlir::OpFoldResult> toExtents(mlir::ImplicitLocOpBuilder &b,
                                                llvm::ArrayRef<mlir::OpFoldResult> elements);

/// A 1-D tensor of element type `element` that holds these extents.
mlir::Value fromExtents(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<mlir::OpFoldResult> extents,
                        mlir::IntegerType element);

/// The elements of a constant integer tensor; nullopt for any other tensor.
std::optional<llvm::SmallVector<int64_t>> constantIntegers(mlir::Value tensor);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_ELEMENTS_H
