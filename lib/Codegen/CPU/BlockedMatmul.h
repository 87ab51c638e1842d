//===- BlockedMatmul.h - Matmul blocked for the caches ------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_CPU_BLOCKEDMATMUL_H
#define SACCADE_LIB_CODEGEN_CPU_BLOCKEDMATMUL_H

#include "Emitter.h"
#include "Microkernel.h"
#include "Prefetch.h"
#include "Product.h"
#include "TileProduct.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"

namespace saccade::cpu {

/// A block of rows and columns of the result.
struct ResultBlock {
  mlir::Value row, rows, column, columns;
};

/// The submatrix of a 2-D memref.
mlir::Value emitBlock(Emitter &e, mlir::Value matrix, const ResultBlock &block);

/// The loops of a matmul with packed operands: a block of the RHS panels stays in L2, a packed group of LHS rows in L1
/// (Goto and van de Geijn, 2008). The accumulators of a block of the result stay in scratch in the compute type over
/// the whole reduction, so results do not depend on the block sizes.
class BlockedMatmul {
public:
  /// Packed panels (`Product::panelsShape`) that hold columns of the RHS from panel `panel` and k-pack `kPack` on.
  struct Panels {
    mlir::Value memref, panel, kPack;
    mlir::Value next;     ///< the first k-pack of the next block, which is prefetched; null for none
    mlir::Value nextItem; ///< the panels that follow the last k-packs of these, from their first on; null if unknown
  };
  /// Returns the panels of the columns of a block and of the k-packs [kPack, kPack + kPacks).
  using GetPanels = llvm::function_ref<Panels(const ResultBlock &block, mlir::Value kPack, mlir::Value kPacks)>;
  /// Initializes the accumulators of a block (memref of rows × columns).
  using Begin = llvm::function_ref<void(mlir::Value tile, const ResultBlock &block)>;

  /// `maxBlock` are the largest rows, columns (a multiple of the panel width) and units of `product` of a block, which
  /// has whole steps of them. K-packs stand for these units everywhere.
  BlockedMatmul(Emitter &e, const Product &product, MatmulBlock maxBlock);

  /// Sets matrices whose elements are prefetched when `runFromRow` stores those of the result.
  void prefetchEpilogue(llvm::SmallVector<mlir::Value> matrices) { epilogue = std::move(matrices); }
  /// The same before the sums of a group of rows in place, and a part of `next` for each of these groups and panels.
  void prefetchInPlace(llvm::SmallVector<mlir::Value> matrices, llvm::SmallVector<NextMatrices> nextMatrices) {
    beforeSums = std::move(matrices);
    next = std::move(nextMatrices);
  }
  /// The groups of rows and panels of a block of `rows` and `columns`.
  int64_t groupsOf(int64_t rows, int64_t columns) const {
    return llvm::divideCeil(rows, tiles ? maxTileBlock.rows : panelBlock(e.target, /*isTail=*/false).rows) *
           llvm::divideCeil(columns, 2 * e.lanes());
  }

  /// A result that stays in the cache, in which whole groups of rows are accumulated without a copy.
  struct InPlace {
    mlir::Value rows;    ///< the result in rows of whole panels; null if its type or strides do not permit it
    bool isZero = false; ///< whether it begins with 0, without a read; `begin` writes 0, and there is one k-pack block
  };

  /// result[m][n] = initial + Σ_k lhs[m][k] · rhs[n][k]. `lhs` and `result` have any strides.
  void run(mlir::Value lhs, mlir::Value result, Begin begin, GetPanels getPanels, InPlace inPlace) {
    run(lhs, result, begin, getPanels, inPlace, {});
  }

  /// The same for initial values that do not depend on m, a `result` with inner stride 1, and no tile registers. All
  /// sums begin in registers, from `initialRow` (memref of the columns of a block, null for 0). Those of whole groups
  /// of rows and whole panels are stored in the result from registers too. `begin` initializes the row, and without
  /// k-packs the accumulators.
  void runFromRow(mlir::Value lhs, mlir::Value result, mlir::Value initialRow, Begin begin, GetPanels getPanels) {
    run(lhs, result, begin, getPanels, {}, FromRow{initialRow, result});
  }

private:
  /// Set by `runFromRow`.
  struct FromRow {
    mlir::Value initialRow, result;
  };
  void run(mlir::Value lhs, mlir::Value result, Begin begin, GetPanels getPanels, InPlace inPlace,
           std::optional<FromRow> fromRow);
  void addParts(RegisterBlock block, const FromRow &fromRow, const ResultBlock &at, mlir::Value row, mlir::Value column,
                mlir::Value kPack, mlir::Value kPacks, mlir::Value allPacks, SumPart sum);

  /// How the microkernel reads a group of LHS rows: in place, from packed rows, or from a packed panel, which has the
  /// elements of a column side by side.
  enum class GroupForm { Unpacked, Rows, Panel };
  GroupForm formOf(mlir::Value lhs);
  mlir::Value kPacksOf(mlir::Value depth);
  void prefetchOperands(RegisterBlock registers, mlir::Value row, mlir::Value column, mlir::Value part);
  std::optional<int64_t> knownRest(mlir::Value lhs, mlir::Value rows);
  void addTiles(RegisterBlock registers, const Panels &panels, mlir::Value panel, mlir::Value kPack, mlir::Value kPacks,
                mlir::Value into, mlir::Value row, mlir::Value column, bool isZero);
  void addBlock(mlir::Value lhs, InPlace inPlace, const std::optional<FromRow> &fromRow, const ResultBlock &block,
                mlir::Value kPack, mlir::Value kPacks, const Panels &panels);

  Emitter &e;
  const Product &product;
  MatmulBlock maxBlock;
  llvm::SmallVector<mlir::Value> epilogue, beforeSums;
  llvm::SmallVector<NextMatrices> next; ///< of the loops around the op
  int64_t groupRows;                    ///< LHS rows of a group
  std::optional<TileMatmul> tiles;      ///< set if products are computed in tile registers
  mlir::Value tile;                     ///< accumulators of a block of the result
  mlir::Value group; ///< packed group of LHS rows, padded by a cache line to avoid set conflicts in L1
  mlir::Value panel; ///< packed group of LHS rows whose columns are contiguous, if `run` needs it
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_BLOCKEDMATMUL_H
