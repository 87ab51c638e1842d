//===- FragmentSoftmax.h - Online softmax on a register fragment --*- C++ -*-===//
//
// Between the two matmuls of attention every thread holds a fragment of the scores in registers. The kernel defines the
// layout of the fragment; the softmax code is common to all kernels.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_FRAGMENTSOFTMAX_H
#define SACCADE_LIB_CODEGEN_GPU_FRAGMENTSOFTMAX_H

#include "../Common/OnlineSoftmax.h"
#include "LinearBias.h"
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"

namespace saccade::device {

/// The softmax state of a thread in private memory. Indices are constants, so that LLVM promotes it to registers.
struct PrivateState {
  mlir::Value acc;                        ///< in a layout of the kernel's choice
  mlir::Value max, sum;                   ///< one element per row; the sum is partial
  llvm::SmallVector<mlir::Value> tallies; ///< bins, row-major; partial
  mlir::Value rowMax, argmax;             ///< over the keys of this thread; null if not requested
  llvm::SmallVector<mlir::Value> others;  ///< those of the above that attn.finalize returns

  /// Returns the number of bins per row of `tally`.
  int64_t bins(mlir::Value tally) const { return sizeOf(tally) / sizeOf(max); }

private:
  static int64_t sizeOf(mlir::Value memory) { return mlir::cast<mlir::MemRefType>(memory.getType()).getDimSize(0); }
};

/// The layout of a thread's scores: element e is at row row + rows[rowOf[e]], column column + columns[e] of the tile.
struct Fragment {
  mlir::Value row, column;            ///< i32, in the query tile and in the key tile
  llvm::SmallVector<int64_t> rows;    ///< distinct rows
  llvm::SmallVector<int64_t> columns; ///< of each element
  llvm::SmallVector<unsigned> rowOf;  ///< of each element
  /// Emits row and column again at a place that few threads reach, so that they take no registers elsewhere. May be
  /// null.
  std::function<std::pair<mlir::Value, mlir::Value>(Emitter &)> emit = {};
};

/// Resets the state of rows of a fragment after the last one of `queries`.
void clearRows(Emitter &e, const Fragment &fragment, mlir::Value queries, const PrivateState &state);

/// Emits the softmax of one attn.accumulate.
class FragmentSoftmax {
public:
  using Value = mlir::Value;
  /// Reduces a value over the threads that share a row, with a binary combiner.
  using RowReduce = llvm::function_ref<Value(Value, llvm::function_ref<Value(Value, Value)>)>;

  /// `queries` and `keys` are the extents of the op's tile. Row r is query r or, with `heads`, query r / heads of head
  /// r mod heads.
  FragmentSoftmax(Emitter &e, attn::AccumulateOp op, Fragment fragment, Value queries, Value keys, Value heads = {});

  /// Returns the range [begin, end) of the first keys of the tiles of `width` keys, i32, relative to key 0 of the op.
  /// Tiles start at absolute multiples of `width`, so that sums are independent of the offset of a call; the first tile
  /// may start before key 0.
  attn::KeyRange getTiles(Emitter &e, int64_t width);

  /// Whether the tiles between the bounds are to be tested, with `forEachVisibleTile`.
  bool testsTiles() const { return !bounds.isExact(); }
  /// For bounds that are the whole mask: whether every row attends to all keys in [first, first + width); `first` is
  /// i32.
  Value isFull(Emitter &e, Value first, int64_t width) const;

  /// Evaluates the mask for the thread's elements of the tile at key `first`. Element i is visible if bit i mod 32 of
  /// word i / 32 (i32) is set. Elements of rows after the last query are not.
  llvm::SmallVector<Value> evaluateMask(Emitter &e, Value first);
  size_t maskWords() const { return llvm::divideCeil(fragment.columns.size(), 32); }

  /// Converts the thread's `scores` (query · key) of the tile at key `first` to softmax weights in place and updates
  /// `state` except its accumulator. Returns the factor of each row by which the accumulator must be rescaled. Unless
  /// `isFull`, `visible` has the words of `evaluateMask`; if it is empty, the mask is evaluated here.
  llvm::SmallVector<Value> apply(Emitter &e, llvm::SmallVectorImpl<Value> &scores, Value first, Value isFull,
                                 llvm::ArrayRef<Value> visible, const PrivateState &state, RowReduce reduce);

  /// Like `apply`, for warps whose lanes all call it. A maximum in `state` is updated only if a score exceeds it by
  /// more than 2^8 as a weight (conditional rescaling; Zadouri et al. 2026, FlashAttention-4). Then `rescale` receives
  /// the factor of each row, in a branch that the whole warp takes, and rescales the accumulator. Returns whether the
  /// warp took the branch (i1).
  Value applyLazily(Emitter &e, llvm::SmallVectorImpl<Value> &scores, Value first, Value isFull,
                    llvm::ArrayRef<Value> visible, const PrivateState &state, RowReduce reduce,
                    llvm::function_ref<void(llvm::ArrayRef<Value> factors)> rescale);

  /// The scores of a thread in a tile, and the words of `evaluateMask` if they are known.
  struct TileScores {
    llvm::SmallVector<Value> scores, visible;
  };
  /// Whether `applySpeculatively` supports the op.
  bool canSpeculate() { return !needsScores && !op.getFinal() && maxGrowth > 0; }
  /// Like `applyLazily`, for scores that `compute` may emit code for twice. Weights are computed before maxima: if
  /// their sums show that no score exceeds the maximum of its row by more than `applyLazily` permits, maxima are not
  /// computed. Otherwise the warp computes the scores again, and maxima before weights in this and some further tiles.
  /// `exactTiles` is private memory of one i32, initially 1: the number of those tiles. Returns what `pack` makes of
  /// the weights: a word (i32) of two weights each.
  llvm::SmallVector<Value> applySpeculatively(Emitter &e, Value first, Value isFull,
                                              llvm::function_ref<TileScores()> compute, Value exactTiles,
                                              const PrivateState &state, RowReduce reduce,
                                              llvm::function_ref<void(llvm::ArrayRef<Value> factors)> rescale,
                                              llvm::function_ref<llvm::SmallVector<Value>(llvm::ArrayRef<Value>)> pack);

  /// Permits tanh with a relative error of 2^-11, if no result has the precision of f32.
  void permitApproximateTanh() { tanh = tanh == TanhMethod::Quotient ? TanhMethod::Instruction : tanh; }

  /// Permits that products start from a bias that is linear in the key (`initialScores`). Call it before the loop over
  /// tiles, and only if `canSpeculate`.
  void permitInitialScores(Emitter &e);
  /// The values to which the products of query and key are to be added, in the order of `scores`: 0, or a part of the
  /// score region.
  llvm::SmallVector<Value> initialScores(Emitter &e);

  /// Resets the state of rows after the last query. Call it after all tiles.
  void clearRows(Emitter &e, const PrivateState &state) const { device::clearRows(e, fragment, queries, state); }

private:
  /// The keys that are visible to some query in [firstQuery, lastQuery] of a head, relative to key 0 of the op, i32.
  /// The range may be empty.
  attn::KeyRange visibleKeys(Emitter &e, Value head, Value firstQuery, Value lastQuery);
  /// The columns of the tile at key `first` that the bounds of the mask permit for each row (index), i32.
  llvm::SmallVector<attn::KeyRange> visibleColumns(Emitter &e, Value first, llvm::ArrayRef<Value> rows);
  bool masksPerHead();
  RowPosition positionOf(Emitter &e, Value row);
  /// The rows (index), their positions, and the columns of the elements (i32), rematerialized at each use.
  llvm::SmallVector<Value> emitRows(Emitter &e);
  llvm::SmallVector<RowPosition> emitRowPositions(Emitter &e);
  llvm::SmallVector<Value> emitColumns(Emitter &e);
  void applyScoreRegion(Emitter &e, llvm::SmallVectorImpl<Value> &scores, Value first);
  void applyWeightRegion(Emitter &e, llvm::SmallVectorImpl<Value> &weights, Value first);
  /// Applies the score region and the mask, and updates the argmax in `state`.
  void computeScores(Emitter &e, llvm::SmallVectorImpl<Value> &scores, Value first, Value isFull,
                     llvm::ArrayRef<Value> visible, const PrivateState &state);
  Value needsUpdate(Emitter &e, llvm::ArrayRef<Value> largest, const PrivateState &state);
  /// Scores s with the weights 2^(s · toBase2 − base).
  struct ShiftedScores {
    llvm::SmallVector<Value> scores, bases; ///< bases by row
  };
  /// The scores with the maxima in `state` as bases.
  ShiftedScores unshifted(Emitter &e, llvm::ArrayRef<Value> scores, const PrivateState &state);
  ShiftedScores chooseScores(Emitter &e, Value condition, llvm::function_ref<ShiftedScores()> whenTrue,
                             llvm::function_ref<ShiftedScores()> whenFalse);
  struct LazyUpdate {
    ShiftedScores scores;
    Value updates; ///< whether some maximum of the warp was updated, i1
  };
  /// Updates the maxima in `state` as far as `applyLazily` requires.
  LazyUpdate updateLazily(Emitter &e, llvm::ArrayRef<Value> scores, const PrivateState &state, RowReduce reduce,
                          llvm::function_ref<void(llvm::ArrayRef<Value> factors)> rescale);
  /// The parts of a linear bias besides `initialScores`: of each row in the tile at key `first`, at the column
  /// `originOf` a row; and of a column of a row, added to x as a multiple of `perColumn`. That is the slope, opaque to
  /// LLVM, which would keep its multiples in registers.
  llvm::SmallVector<Value> biasesOfRows(Emitter &e, Value first);
  int64_t originOf(unsigned row) const;
  Value addColumns(Emitter &e, Value x, Value perColumn, unsigned row, int64_t column);
  /// `updateLazily`, after these parts have been added to `scores`.
  LazyUpdate updateWithBias(Emitter &e, llvm::ArrayRef<Value> scores, Value first, const PrivateState &state,
                            RowReduce reduce, llvm::function_ref<void(llvm::ArrayRef<Value> factors)> rescale);
  /// The exponents with the maxima in `state`, of `scores` without these parts.
  llvm::SmallVector<Value> exponentsWithBias(Emitter &e, llvm::ArrayRef<Value> scores, Value first,
                                             const PrivateState &state);
  /// The base-2 exponent of the weight of each score. `perColumn` is the part of a linear bias in a column that the
  /// scores lack; null if there is none.
  llvm::SmallVector<Value> exponentsOf(Emitter &e, const ShiftedScores &shifted, Value perColumn = {});
  /// The exponent of a maximum in `state`.
  Value exponentOfMax(Emitter &e, Value max);
  /// The maximum of a row after a tile, from its largest score and the maximum before.
  RowMax rowMaxAfter(Emitter &e, Value tileMax, Value before);
  /// Updates the maxima in `state` by the row maxima of a tile.
  llvm::SmallVector<RowMax> updateMaxima(Emitter &e, llvm::ArrayRef<Value> tileMax, const PrivateState &state);
  /// Replaces scores by weights and adds them to the tallies. Returns the sum of the weights of each row.
  llvm::SmallVector<Value> computeWeights(Emitter &e, llvm::SmallVectorImpl<Value> &scores,
                                          llvm::ArrayRef<Value> exponents, Value first, const PrivateState &state);
  /// The maximum of each row over the elements of this thread.
  llvm::SmallVector<Value> threadMaxima(Emitter &e, llvm::ArrayRef<Value> scores);
  /// The row maxima of the tile.
  llvm::SmallVector<Value> rowMaxima(Emitter &e, llvm::ArrayRef<Value> scores, RowReduce reduce);
  /// The scores with `maxima` as bases, in a rarely taken branch shifted. `tileMax` are row maxima of the tile as
  /// scores.
  ShiftedScores shift(Emitter &e, llvm::ArrayRef<Value> scores, llvm::ArrayRef<Value> tileMax,
                      llvm::ArrayRef<RowMax> maxima);
  void updateArgmax(Emitter &e, llvm::ArrayRef<Value> scores, Value first, const PrivateState &state);
  void scaleTallies(Emitter &e, llvm::ArrayRef<Value> factors, const PrivateState &state);
  void addToTallies(Emitter &e, unsigned i, Value score, Value weight, Value first, const PrivateState &state);
  /// Variant of `apply` for a final step: max and sum are known, only the weights are computed.
  llvm::SmallVector<Value> applyFinal(Emitter &e, llvm::SmallVectorImpl<Value> &scores, Value first,
                                      const PrivateState &state, RowReduce reduce);
  /// Passes the mask of each element of the tile at key `first` to `use`. `isRow` tells which rows have keys; if it is
  /// empty, all have.
  void forEachVisibility(Emitter &e, Value first, llvm::ArrayRef<Value> rows, llvm::ArrayRef<Value> isRow,
                         llvm::function_ref<void(unsigned i, Value isVisible)> use);
  llvm::SmallVector<Value> mask(Emitter &e, llvm::ArrayRef<Value> scores, Value first, llvm::ArrayRef<Value> visible);

  attn::AccumulateOp op;
  attn::Position at;
  Fragment fragment;
  Value queries, keys, heads;
  attn::KeyBounds bounds;
  attn::KeyRange visibleToAny, visibleToAll; ///< keys visible to some row, to all rows
  Value scale;                               ///< null if folded into toBase2
  Value toBase2;                             ///< factor from scores to base-2 exponents
  double toNatural = 1;                      ///< factor from scores to those of the op
  bool keepsFactors = false;                 ///< whether the common factor of score regions stays in scores
  bool needsScores;                          ///< whether scores have other uses than their weights
  TanhMethod tanh;                           ///< of score regions
  std::optional<LinearBias> bias;            ///< that the score region is, if `initialScores` has a part of it
  double biasScale = 1;                      ///< 1 / scale of the scores that start with it
  Value slope;                               ///< of `bias`, times `biasScale`
  int64_t initialColumns = 8;                ///< from which `initialScores` repeat
  double maxGrowth; ///< the exponent by which scores may exceed the maximum of a row before it is updated
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_FRAGMENTSOFTMAX_H
