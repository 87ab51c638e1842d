//===- GlobalMatrix.h - Operands of attention in global memory ----*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_GLOBALMATRIX_H
#define SACCADE_LIB_CODEGEN_GPU_GLOBALMATRIX_H

#include "Emitter.h"

namespace saccade::device {

/// A memref of positions × depth (in either order, any strides) as address arithmetic, or of positions alone. With heads
/// among the dimensions row i · heads + h is position i of head h.
class GlobalMatrix {
public:
  /// `memref` has the dimensions s and d, and perhaps h, in the order of `dims`.
  GlobalMatrix(Emitter &e, mlir::Value memref, attn::DimsAttr dims);
  /// A vector of positions, or one row of it for each.
  GlobalMatrix(Emitter &e, mlir::Value memref);
  /// The dimensions `rowDim` and `columnDim` of `memref` as rows and columns, the other ones at the positions `at` (index,
  /// one a dimension; those of rows and columns where these begin).
  GlobalMatrix(Emitter &e, mlir::Value memref, unsigned rowDim, unsigned columnDim, llvm::ArrayRef<mlir::Value> at);

  mlir::Type element;
  int64_t columns;      ///< dynamic where not known
  mlir::Value rows;     ///< index
  mlir::Value base;     ///< of element 0: !llvm.ptr<1>
  mlir::Value rowStride, columnStride; ///< index, in elements; of rows without heads
  mlir::Value heads, headStride;       ///< null without them

  /// The address of an element; both are index.
  mlir::Value address(Emitter &e, mlir::Value row, mlir::Value column) const;
  /// Whether every row is contiguous and begins at a multiple of `bytes`.
  mlir::Value isAligned(Emitter &e, int64_t bytes) const;

private:
  /// Returns the strides.
  llvm::SmallVector<mlir::OpFoldResult> read(Emitter &e, mlir::Value memref, unsigned rowDim,
                                             std::optional<unsigned> columnDim,
                                             std::optional<unsigned> headDim = std::nullopt);
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_GLOBALMATRIX_H
