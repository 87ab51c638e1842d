//===- TensorMap.h - Operands that bulk copies read ---------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_TENSORMAP_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_TENSORMAP_H

#include "../GlobalMatrix.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

namespace saccade::device {

/// An operand as a part of a tensor, which a tensor map describes: a parameter of the kernel, or a constant.
struct MappedOperand {
  int64_t argument = -1;            ///< index of the tensor among the parameters of the task
  mlir::FlatSymbolRefAttr constant; ///< the tensor in the device module, null if it is a parameter
  unsigned rowDim, columnDim;
  /// The position of the operand's first element in each dimension of the tensor.
  llvm::SmallVector<mlir::OpFoldResult> position;
  mlir::MemRefType type;      ///< of the tensor
  attn::LoadPagesOp pages;    ///< null if rows are not in pages; otherwise the tensor is the pool
  unsigned pageDim = 0;       ///< of the pages
  bool mayBeRepeated = false; ///< whether strides of dimensions other than rows and columns may be 0

  /// The same operand in a copy of the ops, with the values of `copies`.
  MappedOperand in(const mlir::IRMapping &copies) const;
  /// The plan of the tensor map, after the number of the tensor (tensorMapsAttr), for tiles of `rows` rows and boxes
  /// of `columns` columns. A box has all rows of a tile; in pages it has `BulkTensor::commonRows`.
  llvm::SmallVector<int64_t> plan(int64_t rows, int64_t columns) const;
  /// The dimensions of the tensor map: columns, rows, then the others.
  llvm::SmallVector<unsigned> order() const;
  /// The coordinates of a box, i32, innermost first: `row` (i32) and `column` of the operand, or of its page `page`
  /// (i32), which is null if rows are not in pages.
  llvm::SmallVector<mlir::Value> coordinates(Emitter &e, mlir::Value row, int64_t column, mlir::Value page = {}) const;
  llvm::SmallVector<mlir::Value> coordinates(Emitter &e, mlir::Value row, mlir::Value column,
                                             mlir::Value page = {}) const;
};

/// Whether a tensor map can describe an operand: views with unit steps lead to a parameter of the kernel, or to a
/// constant, that has at most as many dimensions as a tensor map.
bool isMappable(mlir::Value operand);

/// The same for an operand whose elements of a position are along dimension `columnDim`.
bool isMappable(mlir::Value operand, unsigned columnDim);
/// The same for an operand with the dimensions `dims`, none of which may be that of heads. It may be in pages, if their
/// size is not known to be other than a multiple of `BulkTensor::swizzleRows`.
bool isMappable(mlir::Value operand, attn::DimsAttr dims);

/// An extent of a parameter of the task, or the parameter if it is a number.
struct ParameterExtent {
  static constexpr int64_t number = -1; ///< in place of a dimension

  int64_t argument, dim;
  bool operator==(const ParameterExtent &) const = default;
};
/// The extents that must be equal for dimension `dim` of an operand that `isMappable` to be a whole dimension of its
/// tensor: that of the parameter, and that which is the extent of the operand. They may be the same; none if both
/// are equal constants. nullopt if the dimension is a part, or may be one.
std::optional<llvm::SmallVector<ParameterExtent>> extentsIfWhole(mlir::Value operand, unsigned dim);

/// Whether the views of an operand that `isMappable` have positions that are known at the start of the kernel.
bool hasKnownPosition(mlir::Value operand);
/// Describes an operand that `isMappable`, with code for its position behind its views.
MappedOperand mapOperand(mlir::Value operand, unsigned rowDim, unsigned columnDim);
MappedOperand mapOperand(mlir::Value operand, attn::DimsAttr dims);
/// The same for an operand that may be repeated along its other dimensions, with strides of 0. Attention does not use
/// it: the warp that copies would spill.
MappedOperand mapRepeatedOperand(mlir::Value operand, unsigned rowDim, unsigned columnDim);

/// An operand, and the rows of a tile of it.
struct BoxedOperand {
  const MappedOperand &operand;
  int64_t rows;
};
/// Adds a parameter for the tensor map of each operand, before all others, and returns them (!llvm.ptr).
llvm::SmallVector<mlir::Value> addTensorMaps(mlir::func::FuncOp kernel, llvm::ArrayRef<BoxedOperand> operands);

/// Adds a copy of `kernel`, which becomes one with tensor maps, to the `kernels` of its module. Its name ends with
/// "_sm_90a" and `suffix`.
mlir::func::FuncOp copyForTensorMaps(mlir::func::FuncOp kernel, mlir::SymbolTable &kernels,
                                     llvm::StringRef suffix = "");

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_TENSORMAP_H
