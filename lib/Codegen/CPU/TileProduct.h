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
#include "saccade/Dialect/Attn/Analysis/ProductForm.h"

namespace saccade::cpu {

/// Rows of a tile register, k-packs of a row, and columns of a row of accumulators.
inline constexpr int64_t tileSize = 16;

/// The registers of a product: 2 × 2 accumulators, and two registers of each operand.
inline constexpr RegisterBlock maxTileBlock = {tileRowGroup, 2};
inline constexpr RegisterBlock tailTileBlock = {tileSize, 2};

/// The products of the parts of elements (see Pack.h) that are added: of whole elements, of two parts all but the
/// product of the lower ones, which is at most 2⁻¹⁸ of that of the elements, or all four, whose sum is exact.
enum class PartProducts { Whole, Rounded, Exact };

/// The parts of an element.
inline unsigned partsOf(PartProducts products) { return products == PartProducts::Whole ? 1 : 2; }

/// Elements of 32 bits in memory: the address of the first one of a row, and the bytes between rows.
struct TileMemory {
  mlir::Value address, stride;
};

/// The rows of `memref` (inner stride 1, with a constant stride of rows) from element `at` on. One with a single
/// dimension is the same row again and again.
TileMemory emitTileMemory(Emitter &e, mlir::Value memref, mlir::ValueRange at);

/// Zeros in the tile registers of a block of `block.rows` rows (a multiple of `tileSize`) and `block.vectors` registers
/// of columns.
llvm::SmallVector<mlir::Value> emitZeroTiles(Emitter &e, RegisterBlock block);
/// The same with the elements of a row (memref of 32-bit floats) in every row.
llvm::SmallVector<mlir::Value> emitRepeatRow(Emitter &e, RegisterBlock block, mlir::Value row);
/// The block of `matrix` (memref of 32-bit floats, inner stride 1) that starts at (row, column).
llvm::SmallVector<mlir::Value> emitLoadTiles(Emitter &e, RegisterBlock block, mlir::Value matrix, mlir::Value row,
                                             mlir::Value column);

/// Like emitMicrokernel, with accumulators in tile registers: adds Σ_{begin ≤ k < end} a(k) · b(k), where k counts
/// k-packs in steps of `tileSize`, and returns the accumulators (row-major). Operands have whole steps, and beyond the
/// reduced dimension one of them is 0 and the other finite. `a` returns k-packs of `tileSize` rows from row i on, `b` a
/// register of columns of `tileSize` k-packs. If elements have two parts, k counts the k-packs of both (see Pack.h).
llvm::SmallVector<mlir::Value> emitTileProduct(Emitter &e, RegisterBlock block, mlir::Value begin, mlir::Value end,
                                               llvm::ArrayRef<mlir::Value> acc,
                                               llvm::function_ref<TileMemory(int64_t i, mlir::Value k)> a,
                                               llvm::function_ref<TileMemory(mlir::Value k, unsigned j)> b,
                                               PartProducts products = PartProducts::Whole);

/// Stores a block to `matrix` from (row, column) on.
void emitStoreTiles(Emitter &e, RegisterBlock block, llvm::ArrayRef<mlir::Value> tiles, mlir::Value matrix,
                    mlir::Value row, mlir::Value column);

/// Matmuls whose reduced dimension has any length: it may end within a step, and long sums have parts.
class TileMatmul {
public:
  /// k-packs of an operand: rows of the LHS from (row, column) on, elements of 32 bits or pairs of 16 bits with inner
  /// stride 1, of which columns before `lhsEnd` may be read; and panels (memref of panels × k-packs × width) from
  /// k-pack `firstRHS` of panel `panel` on. Both have whole steps if elements have two parts.
  struct Operands {
    mlir::Value lhs, row, column, lhsEnd, panels, panel, firstRHS;
  };

  /// Allocates scratch memory. `product`: a form in tile registers.
  TileMatmul(Emitter &e, const ProductTraits &product);

  /// Adds the products of k-packs [begin, begin + kPacks) of a sum to the block of `result` that starts at (row,
  /// column). The first `chain` k-packs continue the accumulators that `start` returns; the products of later ones are
  /// added in parts, each of which is one call. So results do not depend on the parts if these are `part` k-packs.
  void add(RegisterBlock block, const Operands &operands, mlir::Value begin, mlir::Value kPacks, mlir::Value result,
           mlir::Value row, mlir::Value column, llvm::function_ref<llvm::SmallVector<mlir::Value>()> start);

  /// An instruction adds 16 products, so a chain of 512 k-packs has 32 roundings one after another. With two parts it
  /// has up to 64, of which 48 are those of small products.
  static constexpr int64_t chain = 512, part = 128;

private:
  llvm::SmallVector<mlir::Value> sum(RegisterBlock block, mlir::Value kPacks, const Operands &operands,
                                     llvm::ArrayRef<mlir::Value> acc);
  void copyLastStep(RegisterBlock block, mlir::Value count, const Operands &operands, mlir::Value whole);

  Emitter &e;
  PartProducts products;
  mlir::Value lastLHS, lastRHS; ///< the last step of the operands, with zeros beyond the end
  mlir::Value partSums;
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_TILEPRODUCT_H
