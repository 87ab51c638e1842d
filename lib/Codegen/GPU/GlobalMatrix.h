//===- GlobalMatrix.h - Operands of attention in global memory ----*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_GLOBALMATRIX_H
#define SACCADE_LIB_CODEGEN_GPU_GLOBALMATRIX_H

#include "Emitter.h"

namespace saccade::device {

/// A memref of positions × depth (in either order, any strides) as address arithmetic, or of positions alone.
class GlobalMatrix {
public:
  /// `memref` has the dimensions s and d in the order of `dims`.
  GlobalMatrix(Emitter &e, mlir::Value memref, attn::DimsAttr dims);
  /// A vector of positions, or one row of it for each.
  GlobalMatrix(Emitter &e, mlir::Value memref);

  mlir::Type element;
  int64_t columns;      ///< dynamic where not known
  mlir::Value rows;     ///< index
  mlir::Value base;     ///< of element 0: !llvm.ptr<1>
  mlir::Value rowStride, columnStride; ///< index, in elements

  /// The address of an element; both are index.
  mlir::Value address(Emitter &e, mlir::Value row, mlir::Value column) const;
  /// Whether every row is contiguous and begins at a multiple of `bytes`.
  mlir::Value isAligned(Emitter &e, int64_t bytes) const;

private:
  void read(Emitter &e, mlir::Value memref, unsigned rowDim, std::optional<unsigned> columnDim);
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_GLOBALMATRIX_H
