//===- ScoreTile.h - Online softmax of a group of rows ------------*- C++ -*-===//
//
// Applies score region and mask to the scores of a group of rows in scratch memory, updates the row maxima, and
// replaces the scores t by the weights 2^(t − m), stored as k-packs (see Pack.h).
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_SCORETILE_H
#define SACCADE_LIB_CODEGEN_CPU_SCORETILE_H

#include "../Common/OnlineSoftmax.h"
#include "Emitter.h"
#include "Exp2.h"
#include "Product.h"
#include "VisibleColumns.h"
#include "WeightRegions.h"

namespace saccade::cpu {

/// Lane r of the result combines all lanes of vector r, for as many vectors as lanes. The order is the same for every
/// vector.
mlir::Value emitReduceVectors(Emitter &e, llvm::ArrayRef<mlir::Value> vectors,
                              llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> combine);

/// lane < limit for each lane and any limit.
mlir::Value lanesBelow(Emitter &e, mlir::Value limit);

/// Lane r combines all lanes of row first + r of `laneValues`, for r < rows.
mlir::Value reduceRows(Emitter &e, mlir::Value laneValues, int64_t first, int64_t rows, double neutral,
                       llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> combine);

/// Scratch memory for per-row values of a group.
struct GroupState {
  /// The memory has `rows` rows, rounded up to whole registers.
  GroupState(Emitter &e, int64_t rows, bool keepsMaxima = false);

  mlir::Value laneValues; ///< one vector per row, not yet reduced over lanes: maxima, then sums
  mlir::Value factors;    ///< rescaling factors of the accumulator
  mlir::Value shifts, offsets;
  mlir::Value maxima; ///< row maxima within the tile; null if not needed
};

/// The scale of the scores. Its sign is applied to the queries, which is exact, so that the maximum dot product belongs
/// to the maximum score; its magnitude is applied to the dot products.
struct SplitScale {
  mlir::Value signMask; ///< sign bits to XOR into a k-pack of queries; null for none
  mlir::Value size;
};
SplitScale emitSplitScale(Emitter &e, attn::ScoringOpInterface op, unsigned kPackElements);

/// Emits the softmax of the rows of one attn.accumulate.
class ScoreTile {
public:
  /// `scores`: memref<rows x columns> of a group of rows, row-major, in the score type, with the dot products before
  /// `scale` (a positive scalar); columns is at least the number of keys rounded up to `chunk(e)`. `product`: of
  /// weights and values. `error`: error bound of the exponential of weights. `keys`: number of keys in the tile.
  ScoreTile(Emitter &e, attn::AccumulateOp op, mlir::Value scores, mlir::Value scale, const Product &product,
            Exp2Error error, mlir::Value keys);

  /// Columns that scoreRow processes per iteration.
  static int64_t chunk(const Emitter &e) { return 4 * e.lanes(); }

  /// Sets the position of row 0 of the tile: query `query` of head `head`, relative to the position of the op.
  void setOrigin(mlir::Value head, mlir::Value query);

  /// The columns (relative to the tile) that are visible to some row of [firstRow, firstRow + rows), within [0, keys).
  ColumnRuns visibleKeys(mlir::Value firstRow, mlir::Value rows);

  //===--- Groups of rows ---===//
  /// Whether the mask is a range of columns per row, so that it is applied together with the score matmul. Otherwise
  /// `scoreGroup` applies the mask region.
  bool isMaskedByColumn() { return bounds.isExact(); }
  /// Whether the score region is short enough to be emitted for every register of a block.
  bool isShort();
  /// Applies the score region, if any, to a register of dot products.
  mlir::Value score(mlir::Value dotProducts, mlir::Value tileRow, mlir::Value column);
  /// The columns of `group` that are known to be visible to all of its rows.
  attn::KeyRange fullyVisibleKeys(mlir::Value firstRow, mlir::Value rows, attn::KeyRange group);
  /// Masks `count` columns of a row from `column` on (all are visible if `group` is null). Applies the score region
  /// first unless `isScored`. Returns the running maximum per lane.
  mlir::Value maskColumns(mlir::Value row, mlir::Value tileRow, mlir::Value column, int64_t count,
                          const attn::KeyRange *group, bool isScored, mlir::Value max);
  /// Applies regions and mask to all columns of a group of rows if not `isMaskedByColumn`; adds their maxima to
  /// `state.laneValues`.
  void scoreGroup(const GroupState &state, mlir::Value firstRow, mlir::Value rows, const ColumnRuns &group);
  /// Like scoreGroup for one row, which may have its own origin (`setOrigin`); returns the running maximum per lane.
  mlir::Value scoreRow(mlir::Value row, mlir::Value tileRow, attn::KeyRange group);
  /// Replaces the scores of the first `rows` scratch rows, rows `firstRow`.. of the tile, by weights and updates max
  /// and sum, unless the weights are those of a normalizer. `state.laneValues` must hold the maxima per lane. Calls
  /// `onRow` for each row, before its weight region. Returns the columns that have weights, all but those whose weights
  /// are 0.
  ColumnRuns softmaxGroup(const GroupState &state, mlir::Value firstRow, mlir::Value rows, const ColumnRuns &group,
                          llvm::function_ref<void(mlir::Value row)> onRow);
  /// Weights take the place of scores. Those of stick_breaking that are packed would do so before all scores are read,
  /// and need memory of their own, which must be allocated before softmaxGroup.
  void allocateWeights();
  /// The memory of the weights.
  mlir::Value getWeights() const { return weights; }

private:
  void normalizeGroup(const GroupState &state, mlir::Value firstRow, mlir::Value rows, const ColumnRuns &group,
                      llvm::function_ref<void(mlir::Value row)> onRow);
  /// A row whose scores are replaced by weights: 2^((score − shift) · factor + offset).
  struct WeighedRow {
    mlir::Value row, tileRow; ///< of the group, and of the tile
    mlir::Value shift, offset;
    mlir::Value largest; ///< the score whose key is sought, NaN if it is known; null without argmax
  };
  /// Columns [column, column + registers · lanes) of the scores; those outside of `within` are masked.
  struct StickChunk {
    mlir::Value column;
    int64_t registers;
    attn::KeyRange within;
    mlir::Value isWhole; ///< whether no column is outside
  };
  ColumnRuns breakSticks(const GroupState &state, mlir::Value firstRow, mlir::Value rows, const ColumnRuns &group,
                         llvm::function_ref<void(mlir::Value row)> onRow);
  llvm::SmallVector<mlir::Value> loadChunk(mlir::Value row, const StickChunk &chunk);
  mlir::Value breakChunk(const GroupState &state, mlir::Value row, mlir::Value tileRow, const StickChunk &chunk);
  /// Computes the weights of a row and returns their sum per lane.
  mlir::Value weighRow(const WeighedRow &row, const ColumnRuns &group);
  llvm::SmallVector<mlir::Value> weighColumns(const WeighedRow &row, attn::KeyRange columns,
                                              llvm::ArrayRef<mlir::Value> before, bool isBounded);
  /// `naturalScale` if it is a power of two, by which division is exact.
  std::optional<double> naturalPower();
  /// Updates the row maximum; returns it if its key is to be sought, else NaN. Null without argmax.
  mlir::Value updateRowMax(mlir::Value tileRow, mlir::Value tileMax);
  /// Keeps the first key that has the score sought among the registers of scores `given` from `column` on.
  void findArgmax(const WeighedRow &row, llvm::ArrayRef<mlir::Value> given, mlir::Value column);
  attn::KeyRange visibleKeysAbsolute(mlir::Value firstQuery, mlir::Value lastQuery);
  attn::KeyRange visibleKeysOfRow(mlir::Value tileRow, attn::KeyRange group);
  /// The columns of `run`, rounded to registers.
  attn::KeyRange columnsOf(attn::KeyRange run);
  /// Rows of a group.
  int64_t groupRows() const { return mlir::cast<mlir::MemRefType>(scores.getType()).getDimSize(0); }
  mlir::Value scoreColumns(mlir::Value row, mlir::Value column, int64_t count, mlir::Value query,
                           const attn::KeyRange *within, bool isScored, mlir::Value max);
  mlir::Value applyRegion(mlir::Region &region, mlir::Value score, mlir::Value query, mlir::Value column,
                          mlir::Value active);

  Emitter &e;
  attn::AccumulateOp op;
  mlir::Value scores, weights;
  const Product &product;
  Exp2Error error;
  attn::KeyBounds bounds;
  mlir::Value keys;
  std::optional<VisibleColumns> panels; ///< set if the bounds do not express the whole mask
  attn::Position at;                    ///< of row 0 and column 0
  mlir::Value regionScale;              ///< scalar; scales dot products for the score region
  mlir::Value toBase2;      ///< scalar; scales the values in `scores` after the first sweep to exponents of 2
  mlir::Value toNatural;    ///< scalar; scales these values to the scores of the op; null for 1
  mlir::Value naturalScale; ///< `toNatural` without zeros, if maxima are natural; else null
  WeightRegions regions;

public:
  /// Set if a region has an op that cannot be vectorized; the diagnostic has been emitted.
  bool failed = false;
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_SCORETILE_H
