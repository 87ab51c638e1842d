//===- GradientStep.h - The ops of a tile of pairs in a gradient --*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_GRADIENTSTEP_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_GRADIENTSTEP_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace saccade::device {

/// A matrix in global memory: the dimensions of `memref` that are positions and elements of a position.
struct PositionMatrix {
  mlir::Value memref;
  unsigned rowDim, columnDim;
  int64_t columns;

  bool operator==(const PositionMatrix &other) const { return memref == other.memref && rowDim == other.rowDim; }
};

/// The ops of `GradientTile::addTile` (lib/Tiling) for one tile of pairs of query and key, and those around it:
///
///   products of rows and columns      S = Q Kᵀ, dP = dO Vᵀ                  [rows, columns]
///   one elementwise op on pairs       P, dS                                  [rows, columns], rounded to 16 bits
///   sums += (P or dS) · columns       dQ += dS K, or dK += dSᵀ Q, dV += Pᵀ dO  [rows, head size]
///
/// *Rows* are the positions of the sums: queries, or keys. Columns are the positions over which the sums run.
struct GradientStep {
  /// A product of 16-bit matrices, zero before.
  struct Product {
    mlir::linalg::GenericOp op;
    mlir::linalg::FillOp fill;
    PositionMatrix row, column;
  };
  struct Sum {
    mlir::linalg::GenericOp op;
    unsigned result; ///< of `pairs`, which is multiplied
    PositionMatrix column;
    mlir::memref::AllocOp buffer; ///< f32, begins as zeros
    mlir::linalg::FillOp fill;
    llvm::SmallVector<mlir::linalg::GenericOp> stores; ///< which round the sums to results in global memory
  };

  /// Matches the ops around the elementwise op `pairs`. Returns nullopt if they have another form, or other uses, and
  /// sets `obstacle` to the reason: "elements are f32".
  static std::optional<GradientStep> match(mlir::linalg::GenericOp pairs, std::string *obstacle = nullptr);
  /// Moves the views of rows before `outermost`: with static extents bufferization leaves them at their uses.
  void hoistRows();
  /// Erases all of them.
  void erase();
  /// Whether the elementwise op takes many registers beside sums of more than 64 registers of a thread: for elements of
  /// tensors that are loaded at once, or for its own ops.
  bool needsRegisters();

  mlir::linalg::GenericOp pairs;
  unsigned rowLoop;                                 ///< of `pairs`
  llvm::SmallVector<std::optional<Product>> inputs; ///< of `pairs`; other inputs are in global memory
  llvm::SmallVector<Sum> sums;
  mlir::Operation *outermost; ///< the op with the step, in the block of the buffers of the sums; `pairs` without loops
  mlir::Type element;         ///< of all matrices and of the results of `pairs`

  unsigned columnLoop() const { return 1 - rowLoop; }
  /// The results of `pairs` that sums use, each once.
  llvm::SmallVector<unsigned> usedResults() const;
  /// The inputs of `pairs` that are vectors of f32 along the columns.
  llvm::SmallVector<mlir::Value> columnVectors();
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_GRADIENTSTEP_H
