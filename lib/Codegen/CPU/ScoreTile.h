//===- ScoreTile.h - The scores of a few queries, made into weights -*- C++ -*-===//
//
// The middle of the online softmax: scores of a group of rows are in scratch memory; regions, mask
// and maximum are applied, and 2^(t − m) is left in their place, in words (see Pack.h).
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_SCORETILE_H
#define SACCADE_LIB_CODEGEN_CPU_SCORETILE_H

#include "Emitter.h"
#include "Exp2.h"
#include "VisibleColumns.h"
#include "WeightRegions.h"

namespace saccade::cpu {

/// Lane r of the result is all lanes of vector r combined; as many vectors as lanes. Every row's lanes are combined in
/// the same order.
mlir::Value emitReduceVectors(Emitter &e, llvm::ArrayRef<mlir::Value> vectors,
                            llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> combine);

/// Scratch memory for what is one number for each row of a group.
struct GroupState {
  explicit GroupState(Emitter &e, bool keepsMaxima = false);
  /// A group's rows in whole registers.
  static int64_t rows(const Emitter &e);

  mlir::Value laneValues; ///< one vector a row, to be reduced: maxima, then sums
  mlir::Value factors; ///< for the rows of the accumulator
  mlir::Value shifts, offsets;
  mlir::Value maxima; ///< largest scores of the tile, null where nobody asks
};

/// Scale as the softmax applies it: its sign goes into the queries, which is exact, so that the largest product is the
/// largest score; its size is multiplied after the sum over the head.
struct SplitScale {
  mlir::Value signMask; ///< the bits of a word of queries that change their value; null for none
  mlir::Value size;
};
SplitScale emitSplitScale(Emitter &e, attn::AccumulateOp op, unsigned step);

/// Emits the softmax of the rows of one attn.accumulate.
class ScoreTile {
public:
  /// `scores`: memref<rowGroup x columns>, row-major, in the score type, holds query · key before `scale` (a positive
  /// scalar); columns is a multiple of `chunk(e)` or more. `step`: the elements of a word of weights. `error` is what
  /// their exponential may be off by. `keys` are in the tile.
  ScoreTile(Emitter &e, attn::AccumulateOp op, mlir::Value scores, mlir::Value scale, unsigned step, Exp2Error error,
            mlir::Value keys);

  /// The columns that are worked on together.
  static int64_t chunk(const Emitter &e) { return 4 * e.lanes(); }

  /// Says whose rows follow: row 0 of the tile is query `query` of head `head`, counted from those that the op begins
  /// with.
  void setOrigin(mlir::Value head, mlir::Value query);

  /// The columns (relative to the tile) that some row of [firstRow, firstRow + rows) reaches, within [0, keys).
  ColumnRuns reach(mlir::Value firstRow, mlir::Value rows);

  //===--- Groups of rows ---===//
  /// Whether a score is masked by its column, so that all is done with it while it is in a register, or has just been.
  /// Else `scoreGroup` does it.
  bool isMaskedByColumn() { return bounds.isExact(); }
  /// Whether `score` is short enough to be repeated for every register of a block.
  bool isShort();
  /// What the score region makes of a register of products; they themselves without one.
  mlir::Value score(mlir::Value products, mlir::Value tileRow, mlir::Value column);
  /// The part of `group` that all of its rows see for certain.
  attn::KeyRange fullyVisibleKeys(mlir::Value firstRow, mlir::Value rows, attn::KeyRange group);
  /// Masks `count` columns of a row from `column` on (all are seen without `group`), after the score region where that
  /// is not done yet; returns the running maximum, in lanes.
  mlir::Value maskColumns(mlir::Value row, mlir::Value tileRow, mlir::Value column, int64_t count,
                          const attn::KeyRange *group, bool isScored, mlir::Value max);
  /// Regions and mask on all columns of a group of rows, where not `isMaskedByColumn`; adds their maxima to
  /// `state.laneValues`.
  void scoreGroup(const GroupState &state, mlir::Value firstRow, mlir::Value rows, const ColumnRuns &group);
  /// The same for one row, whose origin may be its own (`setOrigin`); returns the running maximum, in lanes.
  mlir::Value scoreRow(mlir::Value row, mlir::Value tileRow, attn::KeyRange group);
  /// Turns the scores of the first `rows` rows of the scratch, which are those from `firstRow` on of the tile, into
  /// weights. `state.laneValues` holds their maxima before. Does `besides` once for each row.
  void softmaxGroup(const GroupState &state, mlir::Value firstRow, mlir::Value rows, const ColumnRuns &group,
                    llvm::function_ref<void(mlir::Value row)> onRow);

private:
  /// Of one row (in all lanes) or of many (in a lane each).
  struct Exponent {
    mlir::Value max, factor, shift, rest;
  };
  Exponent updateMax(mlir::Value tileMax, mlir::Value oldMax);
  /// Makes the weights of a row and returns their sum, in lanes.
  mlir::Value weighRow(mlir::Value row, const ColumnRuns &group, mlir::Value shift, mlir::Value rest);
  llvm::SmallVector<mlir::Value> weighColumns(mlir::Value row, attn::KeyRange columns, mlir::Value shift,
                                              mlir::Value rest, llvm::ArrayRef<mlir::Value> sums);
  void updateArgmax(mlir::Value row, mlir::Value tileRow, const ColumnRuns &group, mlir::Value tileMax);
  attn::KeyRange visibleKeysAbsolute(mlir::Value firstQuery, mlir::Value lastQuery);
  attn::KeyRange visibleKeysOfRow(mlir::Value tileRow, attn::KeyRange group);
  /// Those of `run`, rounded to registers.
  attn::KeyRange columnsOf(attn::KeyRange run);
  mlir::Value scoreColumns(mlir::Value row, mlir::Value column, int64_t count, mlir::Value query,
                           const attn::KeyRange *within, bool isScored, mlir::Value max);
  mlir::Value applyRegion(mlir::Region &region, mlir::Value score, mlir::Value query, mlir::Value column,
                          mlir::Value active);
  void storeWeights(llvm::ArrayRef<mlir::Value> weights, mlir::Value row, mlir::Value column);

  Emitter &e;
  attn::AccumulateOp op;
  mlir::Value scores;
  unsigned step;
  Exp2Error error;
  attn::KeyBounds bounds;
  mlir::Value keys;
  std::optional<VisibleColumns> panels; ///< where the bounds are not the whole mask
  mlir::Value at[4];
  mlir::Value regionScale; ///< scalar; what a score region sees is scaled
  mlir::Value toBase2;     ///< scalar; from what lies in `scores` after the first sweep to powers of 2
  mlir::Value toNatural;   ///< scalar; to scores as the op defines them; null for 1
  WeightRegions regions;

public:
  /// Set where a region has an op that cannot be vectorised; the diagnostic is out.
  bool failed = false;
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_SCORETILE_H
