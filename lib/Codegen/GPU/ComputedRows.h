//===- ComputedRows.h - Rows that are computed on load ------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_COMPUTEDROWS_H
#define SACCADE_LIB_CODEGEN_GPU_COMPUTEDROWS_H

#include "GlobalMatrix.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace saccade::device {

/// The rows of a tile of keys or values that a linalg.generic computes, such as a dequantization (see KeyTile in the
/// tiling stage). The body is evaluated for each element that a thread reads, so the tile is not in memory. Inputs may
/// be in pages.
class ComputedRows {
public:
  ComputedRows(Emitter &e, mlir::linalg::GenericOp op);

  /// Elements of the inputs that some elements of a row are computed from.
  struct Loaded {
    mlir::Value row, column;                                    ///< index; of the first element
    llvm::SmallVector<llvm::SmallVector<mlir::Value>> elements; ///< one list per input; of one element if all share it
  };
  /// Loads the inputs of `count` successive elements of a row. All of them must be within the tile.
  Loaded load(Emitter &e, mlir::Value row, mlir::Value column, int64_t count) const;
  /// Computes the element at offset `i`.
  mlir::Value compute(Emitter &e, const Loaded &loaded, int64_t i) const;

private:
  struct Input {
    mlir::Value scalar; ///< null for a memory, of which the rest is
    mlir::Type element;
    mlir::AffineMap map; ///< of the position and the depth
    std::optional<GlobalMatrix> pages;
    mlir::Value base;                       ///< without `pages`
    llvm::SmallVector<mlir::Value> strides; ///< index, in elements

    mlir::Value address(Emitter &e, mlir::Value row, mlir::Value column) const;
    bool hasDepth() const { return map.isFunctionOfDim(1); }
    /// Whether `count` successive elements from a multiple of `count` on can be loaded at once; null if never.
    mlir::Value canLoadAtOnce(Emitter &e, int64_t count) const;
  };
  static Input readInput(Emitter &e, mlir::Value operand, mlir::AffineMap map);
  /// Loads an element of a memory, or of a tile that is in pages, that the body reads.
  mlir::Value read(Emitter &e, mlir::memref::LoadOp load, mlir::ValueRange indices) const;

  mlir::Block *body;
  llvm::SmallVector<Input> inputs;
  llvm::DenseMap<mlir::Value, GlobalMatrix> tilesInPages; ///< that the body reads
};

/// The op that computes `tile`, or null.
mlir::linalg::GenericOp findComputation(mlir::Value tile);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_COMPUTEDROWS_H
