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
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"

namespace saccade::cpu {

/// Emits the softmax of the rows of one attn.accumulate.
class ScoreTile {
public:
  /// `scores`: memref<rowGroup x columns>, row-major, in the score type, holds query · key before `scale` (a positive
  /// scalar); columns is a multiple of `chunk(e)` or more. `step`: the elements of a word of weights. `error` is what
  /// their exponential may be off by.
  ScoreTile(Emitter &e, attn::AccumulateOp op, mlir::Value scores, mlir::Value scale, unsigned step, Exp2Error error);

  /// The columns that are worked on together.
  static int64_t chunk(const Emitter &e) { return 4 * e.lanes(); }

  /// The columns (relative to the tile) that some row of [firstRow, firstRow + rows) reaches, within [0, keys).
  attn::KeyRange reach(mlir::Value firstRow, mlir::Value rows, mlir::Value keys);

  /// Turns row `row` of the scratch (row `tileRow` of the tile) from scores into weights in the columns of `group`, as
  /// `reach` gave it, and those that share a word with them; updates the running max and sum of the op. Returns the
  /// factor for the accumulator's row.
  mlir::Value softmaxRow(mlir::Value row, mlir::Value tileRow, attn::KeyRange group, mlir::Value keys);

private:
  attn::KeyRange reachAbsolute(mlir::Value firstQuery, mlir::Value lastQuery, mlir::Value keys);
  mlir::Value scoreChunk(mlir::Value row, mlir::Value column, mlir::Value query, attn::KeyRange *bounds,
                         mlir::Value max);
  mlir::Value applyRegion(mlir::Region &region, mlir::Value score, mlir::Value query, mlir::Value column,
                          mlir::Value active);
  void storeWeights(llvm::ArrayRef<mlir::Value> weights, mlir::Value row, mlir::Value column);

  Emitter &e;
  attn::AccumulateOp op;
  mlir::Value scores;
  unsigned step;
  Exp2Error error;
  attn::KeyBounds bounds;
  mlir::Value at[4];
  mlir::Value regionScale; ///< vector; what a score region sees is scaled
  mlir::Value toBase2;     ///< scalar; from what lies in `scores` after the first sweep to powers of 2

public:
  /// Set where a region has an op that cannot be vectorised; the diagnostic is out.
  bool failed = false;
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_SCORETILE_H
