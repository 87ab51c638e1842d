//===- FragmentSoftmax.h - The online softmax of one thread's scores -*- C++ -*-===//
//
// Between the two products of attention every thread holds some scores of a tile in registers. Which ones is the affair
// of the kernel; what happens to them is the same everywhere.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_FRAGMENTSOFTMAX_H
#define SACCADE_LIB_CODEGEN_GPU_FRAGMENTSOFTMAX_H

#include "EvaluateRegion.h"
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"

namespace saccade::device {

/// The state of a kernel's rows in a thread's own memory, which becomes registers: all its indices are constants.
struct PrivateState {
  mlir::Value acc;      ///< N numbers, as the kernel likes it
  mlir::Value max, sum; ///< a number for each row; the sum is the thread's own part of it
  llvm::SmallVector<mlir::Value> tallies; ///< bins, row by row; the thread's own part of them
  mlir::Value rowMax, argmax;             ///< of what the thread has seen of each row; null where not asked for
  llvm::SmallVector<mlir::Value> others;  ///< of all these, the ones that attn.finalize hands out

  /// How many bins a row of `tally` has.
  int64_t bins(mlir::Value tally) const { return sizeOf(tally) / sizeOf(max); }

private:
  static int64_t sizeOf(mlir::Value memory) { return mlir::cast<mlir::MemRefType>(memory.getType()).getDimSize(0); }
};

/// Which scores a thread holds: element e is row row + rows[rowOf[e]], column column + columns[e] of the tile.
struct Fragment {
  mlir::Value row, column;               ///< i32, of the query tile and of the tile of keys
  llvm::SmallVector<int64_t> rows;       ///< distinct rows
  llvm::SmallVector<int64_t> columns;    ///< of each element
  llvm::SmallVector<unsigned> rowOf;     ///< of each element
};

/// Emits the softmax of one attn.accumulate.
class FragmentSoftmax {
public:
  using Value = mlir::Value;
  /// Joins a value of a row over the threads that share it, two values at a time.
  using RowReduce = llvm::function_ref<Value(Value, llvm::function_ref<Value(Value, Value)>)>;

  /// `queries` and `keys` are the extents of the op's tile: row r is query r, or, where `heads` is given, query r / heads of
  /// head r mod heads.
  FragmentSoftmax(Emitter &e, attn::AccumulateOp op, Fragment fragment, Value queries, Value keys, Value heads = {});

  /// The first key of each tile of `width` keys in a loop: from `begin` while it is less than `end`, i32, relative to key
  /// 0 of the op. Tiles lie at absolute multiples of their width, so that sums do not depend on where a call begins: the
  /// first one may begin before key 0.
  attn::KeyRange getTiles(Emitter &e, int64_t width);

  /// Whether every row sees all of the `width` keys from `first` (i32) on.
  Value isFull(Emitter &e, Value first, int64_t width);

  /// Turns the thread's `scores` (query · key) of the tile that begins at key `first` into weights, and updates max and
  /// sum of `state`. Returns the factor for the accumulator of each row.
  llvm::SmallVector<Value> apply(Emitter &e, llvm::SmallVectorImpl<Value> &scores, Value first, Value isFull,
                                 const PrivateState &state, RowReduce join);

  /// Empties the state of rows behind the last query, which have been computed along: call it after all tiles.
  void clearRows(Emitter &e, const PrivateState &state);

private:
  attn::KeyRange visibleKeysAbsolute(Emitter &e, Value head, Value firstQuery, Value lastQuery);
  /// The keys that some queries of a head see, relative to key 0 of the op, i32. It may be empty.
  attn::KeyRange visibleKeys(Emitter &e, Value head, Value firstQuery, Value lastQuery);
  bool masksPerHead();
  RowPosition positionOf(Emitter &e, Value row);
  /// The rows, what they are, and the columns of the elements (i32), computed where they are used.
  llvm::SmallVector<Value> emitRows(Emitter &e);
  llvm::SmallVector<RowPosition> emitRowPositions(Emitter &e);
  llvm::SmallVector<Value> emitColumns(Emitter &e);
  Value at(Emitter &e, unsigned i);
  void applyScoreRegion(Emitter &e, llvm::SmallVectorImpl<Value> &scores, Value first);
  void applyWeightRegion(Emitter &e, llvm::SmallVectorImpl<Value> &weights, Value first);
  /// The largest score of each row in the tile.
  llvm::SmallVector<Value> largestOfRows(Emitter &e, llvm::ArrayRef<Value> scores, RowReduce join);
  /// What 2 is raised to for the weight of each score: `tileMax` as scores, `maxima` of the tiles so far to base 2.
  llvm::SmallVector<Value> exponentsOf(Emitter &e, llvm::ArrayRef<Value> scores, llvm::ArrayRef<Value> tileMax,
                                       llvm::ArrayRef<Value> maxima);
  void updateArgmax(Emitter &e, llvm::ArrayRef<Value> scores, Value first, const PrivateState &state);
  void scaleTallies(Emitter &e, llvm::ArrayRef<Value> factors, const PrivateState &state);
  void addToTallies(Emitter &e, unsigned i, Value score, Value weight, Value first, const PrivateState &state);
  /// The same of a step that is final: all but the weights is known.
  llvm::SmallVector<Value> applyFinal(Emitter &e, llvm::SmallVectorImpl<Value> &scores, Value first,
                                      const PrivateState &state, RowReduce join);
  llvm::SmallVector<Value> mask(Emitter &e, llvm::ArrayRef<Value> scores, Value first);

  attn::AccumulateOp op;
  Fragment fragment;
  Value queries, keys, heads;
  attn::KeyBounds bounds;
  attn::KeyRange reach, common; ///< of some row, of all rows
  Value scale;   ///< null where it is left to the exponent
  Value toBase2; ///< from what is in the scores after the regions to powers of 2
};

/// The output of the rows that a thread finishes: 1 / sum, or nothing to multiply where there are no keys.
struct RowResult {
  mlir::Value isEmpty, inverse;
  mlir::Value lse;
};
RowResult finalizeRow(Emitter &e, mlir::Value max, mlir::Value sum);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_FRAGMENTSOFTMAX_H
