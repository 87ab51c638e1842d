//===- TensorMap.h - Operands that bulk copies read ---------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_TENSORMAP_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_TENSORMAP_H

#include "../Emitter.h"

namespace saccade::device {

/// An operand as a part of a parameter of the kernel, which a tensor map describes.
struct MappedOperand {
  unsigned argument; ///< its index among the parameters of the task
  unsigned rowDim, columnDim;
  /// The position of the operand's first element in each dimension of the parameter.
  llvm::SmallVector<mlir::OpFoldResult> position;
  mlir::MemRefType type; ///< of the parameter

  /// The plan of the tensor map, after the index of the parameter (tensorMapsAttr), for boxes of `rows` × `columns`.
  llvm::SmallVector<int64_t> plan(int64_t rows, int64_t columns) const;
  /// The dimensions of the tensor map: columns, rows, then the others.
  llvm::SmallVector<unsigned> order() const;
  /// The coordinates of a box, i32, innermost first: `row` (i32) and `column` of the operand.
  llvm::SmallVector<mlir::Value> coordinates(Emitter &e, mlir::Value row, int64_t column) const;
};

/// Traces an operand with the dimensions `dims` through views with unit steps to a parameter of the kernel. nullopt if
/// it is something else, has a dimension of heads, or more dimensions than a tensor map has.
std::optional<MappedOperand> findMappedOperand(mlir::Value operand, attn::DimsAttr dims);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_TENSORMAP_H
