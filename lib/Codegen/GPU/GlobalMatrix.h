//===- GlobalMatrix.h - Operands of kernels in memory -------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_GLOBALMATRIX_H
#define SACCADE_LIB_CODEGEN_GPU_GLOBALMATRIX_H

#include "Emitter.h"
#include <memory>

namespace saccade::device {

class ComputedRows;

/// The memory of a memref in global memory, or of a buffer of the kernel.
struct GlobalMemory {
  /// `isOpaque`: LLVM does not compute `base` before an outer loop, where it would take registers.
  GlobalMemory(Emitter &e, mlir::Value memref, bool isOpaque = false);

  mlir::Value base;                       ///< of element 0: !llvm.ptr<1>, or !llvm.ptr<3> if it is in shared memory
  llvm::SmallVector<mlir::Value> strides; ///< index, in elements
  bool isInShared;
};

/// Address arithmetic on a memref of positions × depth (either order, any strides) or of positions only. If the memref
/// has a head dimension, row i · heads + h is position i of head h. The memref is in global memory, or a buffer of the
/// kernel. If attn.load_pages writes it, rows are those in the pages, and if a linalg.generic computes
/// it, elements are computed when they are loaded; the op is then not needed.
class GlobalMatrix {
public:
  /// `memref` has the dimensions s, d and optionally h, in the order of `dims`. `isOpaque` is that of GlobalMemory.
  GlobalMatrix(Emitter &e, mlir::Value memref, attn::DimsAttr dims, bool isOpaque = false);
  /// `memref` is a vector of positions or a row-major matrix with one row per position.
  GlobalMatrix(Emitter &e, mlir::Value memref);
  /// Dimensions `rowDim` and `columnDim` of `memref` are rows and columns. `at` (index, one per dimension) gives the
  /// position in the other dimensions and the first row and column.
  GlobalMatrix(Emitter &e, mlir::Value memref, unsigned rowDim, unsigned columnDim, llvm::ArrayRef<mlir::Value> at);

  mlir::Type element;
  int64_t columns;                     ///< may be dynamic
  mlir::Value rows;                    ///< index
  mlir::Value base;                    ///< of element 0: !llvm.ptr<1>, or !llvm.ptr<3> if it is in shared memory
  mlir::Value rowStride, columnStride; ///< index, in elements; rowStride is the stride of positions
  mlir::Value heads, headStride;       ///< null without a head dimension
  attn::LoadPagesOp pages;             ///< null if rows are not in pages; `base` is then that of the pool
  mlir::Value pageStride;              ///< index, in elements; null if rows are not in pages
  bool isInShared = false;             ///< whether the memref is a buffer of the kernel
  std::shared_ptr<const ComputedRows> computed; ///< null if elements are in memory; otherwise there is no address

  /// Whether the addresses of rows have no common stride.
  bool hasRowAddresses() const { return heads || pages; }
  /// The address of an element; both are index. The row may be beyond the matrix, which gives an unspecified address.
  mlir::Value address(Emitter &e, mlir::Value row, mlir::Value column) const;
  /// Loads or computes an element of the matrix.
  mlir::Value load(Emitter &e, mlir::Value row, mlir::Value column) const;
  /// Whether every row is contiguous and its address is a multiple of `bytes`.
  mlir::Value isAligned(Emitter &e, int64_t bytes) const;

private:
  /// Returns the strides.
  llvm::SmallVector<mlir::Value> read(Emitter &e, mlir::Value memref, unsigned rowDim,
                                      std::optional<unsigned> columnDim, std::optional<unsigned> headDim = std::nullopt,
                                      bool isOpaque = false);
};

/// Whether `pointer` is a multiple of `bytes`.
mlir::Value isAlignedAddress(Emitter &e, mlir::Value pointer, int64_t bytes);

/// The attn.load_pages that writes `tile`, or null.
attn::LoadPagesOp findPages(mlir::Value tile);
/// Erases the op that writes `tile` for GlobalMatrix only, if there is one, with the memory of the tile, and those for
/// that op.
void eraseWriter(mlir::Value tile);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_GLOBALMATRIX_H
