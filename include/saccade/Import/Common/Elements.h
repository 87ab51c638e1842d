//===- Elements.h - Small tensors whose elements are known one by one -*- C++ -*-===//
//
// Models compute shapes with tensors: the extents of one are gathered, multiplied and joined, and another is reshaped
// to the result. Such tensors are kept as scalars, each a constant or a value made from extents, so that by the time an
// op needs a shape it is there.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_ELEMENTS_H
#define SACCADE_IMPORT_COMMON_ELEMENTS_H

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace saccade::frontend {

/// Tensors of more elements than this are data.
inline constexpr int64_t maxFoldedElements = 64;

/// The elements of `tensor`, row by row, each a constant of its element type or a scalar of it; nothing where it is too
/// large, or comes from elsewhere. A tensor of 0 elements has them all.
std::optional<llvm::SmallVector<mlir::OpFoldResult>> elementsOf(mlir::Value tensor);

/// The tensor with these elements, constant where they all are.
mlir::Value fromElements(mlir::ImplicitLocOpBuilder &b, mlir::RankedTensorType type,
                         llvm::ArrayRef<mlir::OpFoldResult> elements);

/// A scalar of an element; constants are made here.
mlir::Value toValue(mlir::ImplicitLocOpBuilder &b, mlir::OpFoldResult element);

/// Integer elements as extents: index attributes, or values of type index.
llvm::SmallVector<mlir::OpFoldResult> toExtents(mlir::ImplicitLocOpBuilder &b,
                                                llvm::ArrayRef<mlir::OpFoldResult> elements);

/// A tensor of `element` with one dimension that has these extents as elements.
mlir::Value fromExtents(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<mlir::OpFoldResult> extents,
                        mlir::IntegerType element);

/// The elements of a constant tensor of integers; nothing for one that is not.
std::optional<llvm::SmallVector<int64_t>> constantIntegers(mlir::Value tensor);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_ELEMENTS_H
