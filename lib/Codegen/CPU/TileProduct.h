//===- TileProduct.h - Matmuls in tile registers ------------------*- C++ -*-===//
//
// AMX multiplies matrices in eight tile registers of 16 rows × 16 k-packs (Intel SDM vol. 1, chapter 18). The packed
// operands are those of the microkernels (Pack.h): rows of k-packs for the LHS, panels for the RHS.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_TILEPRODUCT_H
#define SACCADE_LIB_CODEGEN_CPU_TILEPRODUCT_H

#include "Emitter.h"
#include "Microkernel.h"

namespace saccade::cpu {

/// Rows of a tile register, k-packs of a row, and columns of a row of accumulators.
inline constexpr int64_t tileSize = 16;

/// The registers of a product: 2 × 2 accumulators, and two registers of each operand. Their 16 sums of 16 products a
/// step are added to the accumulators, so sums need no parts (see `sumLength`).
inline constexpr RegisterBlock maxTileBlock = {2 * tileSize, 2};
inline constexpr RegisterBlock tailTileBlock = {tileSize, 2};

/// Elements of 32 bits in memory: the address of the first one of a row, and the bytes between rows.
struct TileMemory {
  mlir::Value address, stride;
};

/// The rows of `memref` (32-bit elements, inner stride 1, with a constant stride of rows) from element `at` on.
TileMemory emitTileMemory(Emitter &e, mlir::Value memref, mlir::ValueRange at);

/// Zeros in the tile registers of a block of `block.rows` rows (a multiple of `tileSize`) and `block.vectors` registers
/// of columns.
llvm::SmallVector<mlir::Value> emitZeroTiles(Emitter &e, RegisterBlock block);
/// The block of `matrix` (memref of 32-bit floats, inner stride 1) that starts at (row, column).
llvm::SmallVector<mlir::Value> emitLoadTiles(Emitter &e, RegisterBlock block, mlir::Value matrix, mlir::Value row,
                                             mlir::Value column);

/// Like emitMicrokernel, with accumulators in tile registers: adds Σ_{begin ≤ k < end} a(k) · b(k), where k counts
/// k-packs in steps of `tileSize`, and returns the accumulators (row-major). Operands have whole steps, and beyond the
/// reduced dimension one of them is 0 and the other finite. `a` returns k-packs of `tileSize` rows from row i on, `b` a
/// register of columns of `tileSize` k-packs.
llvm::SmallVector<mlir::Value> emitTileProduct(Emitter &e, RegisterBlock block, mlir::Value begin, mlir::Value end,
                                               llvm::ArrayRef<mlir::Value> acc,
                                               llvm::function_ref<TileMemory(int64_t i, mlir::Value k)> a,
                                               llvm::function_ref<TileMemory(mlir::Value k, unsigned j)> b);

/// Stores a block to `matrix` from (row, column) on.
void emitStoreTiles(Emitter &e, RegisterBlock block, llvm::ArrayRef<mlir::Value> tiles, mlir::Value matrix,
                    mlir::Value row, mlir::Value column);

/// Products whose reduced dimension may end within a step.
class TileMatmul {
public:
  /// Allocates memory for the last step of both operands.
  explicit TileMatmul(Emitter &e);

  /// The sums of `block` over the k-packs [0, kPacks). `lhs`: rows of k-packs from (row, column) on, either elements
  /// of 32 bits or pairs of 16 bits, inner stride 1; `lhsEnd`: the columns of `lhs` that may be read. `panels`: memref
  /// of panels × k-packs × width, from k-pack `firstRHS` of panel `panel` on.
  llvm::SmallVector<mlir::Value> sum(RegisterBlock block, mlir::Value kPacks, mlir::Value lhs, mlir::Value row,
                                     mlir::Value column, mlir::Value lhsEnd, mlir::Value panels, mlir::Value panel,
                                     mlir::Value firstRHS, llvm::ArrayRef<mlir::Value> acc);

private:
  void copyLastStep(RegisterBlock block, mlir::Value count, mlir::Value lhs, mlir::Value row, mlir::Value column,
                    mlir::Value lhsEnd, mlir::Value panels, mlir::Value panel, mlir::Value firstRHS);

  Emitter &e;
  mlir::Value lastLHS, lastRHS; ///< zeros beyond the end
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_TILEPRODUCT_H
