//===- MatmulItem.h - A kernel that is one tile of a matmul -------*- C++ -*-===//
//
// A tile of a matmul, the elementwise ops that initialize its result, and those that read it.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_MATMULITEM_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_MATMULITEM_H

#include "MatmulShape.h"
#include "TensorMap.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace saccade::device {

/// The ops of a kernel that computes one tile of a matmul. An element of the result depends on one sum of products, so
/// all ops are evaluated for one element at a time; buffers between them are values.
struct MatmulItem {
  /// An operand as a matrix: dimensions of the operand. The contiguous one is last, if tensor maps can describe it.
  struct Operand {
    mlir::Value value;
    unsigned rowDim, columnDim;
    bool isTransposed; ///< whether columns are m or n
  };

  mlir::linalg::LinalgOp matmul;
  Operand lhs, rhs;
  unsigned rowDim, columnDim; ///< of the result
  int64_t rows, columns;      ///< bounds of the extents of the tile
  /// Extents of parameters that must be equal, so that k ends with both parameters.
  llvm::SmallVector<ParameterExtent> equalExtents;
  llvm::SmallVector<mlir::linalg::LinalgOp> ops; ///< the matmul and the elementwise ops, in order
  llvm::SmallVector<mlir::OpOperand *> loads;    ///< operands of `ops` in memory, not those that `ops` compute
  llvm::SmallVector<mlir::Value> outputs;        ///< the results that are not in buffers of the kernel

  /// Whether only the launch knows how many tiles the result has.
  bool hasDynamicCount() const;

  /// Rows and columns of a part, and parts of a tile, in `emitMatmulParts`.
  static constexpr int64_t partSize = WarpgroupShape::groupRows;
  int64_t partsOfRow() const { return llvm::divideCeil(columns, partSize); }
  int64_t parts() const { return llvm::divideCeil(rows, partSize) * partsOfRow(); }

  MatmulShape shape(int64_t sharedBytes) const {
    auto isWide = [](mlir::Value output) {
      return !llvm::is_contained({1, 8, 16}, mlir::getElementTypeOrSelf(output).getIntOrFloatBitWidth());
    };
    return {rows, columns, lhs.isTransposed, rhs.isTransposed, llvm::any_of(outputs, isWide), sharedBytes};
  }
};

/// The tile of a matmul that `kernel` computes, or nullopt if it computes something else, also if the tile has a type,
/// an operand or a size that warpgroups do not support. `obstacle` becomes the reason, or empty if the number of
/// matmuls of `kernel` is not one.
std::optional<MatmulItem> findMatmulItem(mlir::func::FuncOp kernel, std::string &obstacle);

/// Replaces the ops of `item` in `kernel` by the roles of warpgroups, and sets the launch attributes of the kernel.
void emitMatmulItem(mlir::func::FuncOp kernel, const MatmulItem &item, const MatmulShape &shape);
/// The same for a kernel in which each CTA computes one of `item.parts()` parts of a tile.
void emitMatmulParts(mlir::func::FuncOp kernel, MatmulItem item, int64_t sharedBytes);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_MATMULITEM_H
