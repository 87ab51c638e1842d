//===- FragmentSoftmax.h - Online softmax on a register fragment --*- C++ -*-===//
//
// The weights of the scores that threads hold, and when the maxima of rows are updated: eagerly, lazily, speculatively,
// or not in a final step.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_FRAGMENTSOFTMAX_H
#define SACCADE_LIB_CODEGEN_GPU_FRAGMENTSOFTMAX_H

#include "../Common/OnlineSoftmax.h"
#include "FragmentScores.h"

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

/// Resets the state of rows of a fragment after the last one of `queries`.
void clearRows(Emitter &e, const Fragment &fragment, mlir::Value queries, const PrivateState &state);

/// Emits the softmax of one attn.accumulate: converts scores of `FragmentScores::evaluate` to weights and updates the
/// state except its accumulator. In a final step maximum and sum are known, and only the weights are computed. With a
/// normalizer the maximum becomes 0, and the sum does not change.
class FragmentSoftmax {
public:
  using Value = mlir::Value;
  /// Rescales the accumulator by the factor of each row.
  using Rescale = std::function<void(llvm::ArrayRef<Value> factors)>;

  /// A row is shared by `lanes` consecutive lanes, a power of two. Only `apply` needs no `rescale`.
  FragmentSoftmax(Emitter &e, FragmentScores &scoring, const PrivateState &state, int64_t lanes, Rescale rescale = {});

  FragmentScores &scoring;

  /// Converts the `scores` of the tile at key `first` in place. Returns the factor of each row by which the accumulator
  /// must be rescaled.
  llvm::SmallVector<Value> apply(llvm::SmallVectorImpl<Value> &scores, Value first);

  /// Like `apply`, for warps whose lanes all call it. A maximum in the state is updated only if a score exceeds it by
  /// more than 2^8 as a weight (conditional rescaling; Zadouri et al. 2026, FlashAttention-4). Then the accumulator is
  /// rescaled, in a branch that the whole warp takes. Returns whether the warp took the branch (i1).
  Value applyLazily(llvm::SmallVectorImpl<Value> &scores, Value first);

  /// Whether `applySpeculatively` supports the op.
  bool canSpeculate() { return !scoring.haveOtherUses() && !op.getFinal() && !op.getPointwise() && maxGrowth > 0; }
  /// Like `applyLazily`, for scores that `compute` may emit code for twice. Weights are computed before maxima: if
  /// their sums show that no score exceeds the maximum of its row by more than `applyLazily` permits, maxima are not
  /// computed. Otherwise the warp computes the scores again, and maxima before weights in this and some further tiles.
  /// `exactTiles` is private memory of one i32, initially 1: the number of those tiles. Returns what `pack` makes of
  /// the weights: a word (i32) of two weights each.
  llvm::SmallVector<Value> applySpeculatively(Value first, llvm::function_ref<llvm::SmallVector<Value>()> compute,
                                              Value exactTiles,
                                              llvm::function_ref<llvm::SmallVector<Value>(llvm::ArrayRef<Value>)> pack);

private:
  //===--- Maxima ---===//
  Value needsUpdate(llvm::ArrayRef<Value> largest);
  /// Scores s with the weights 2^(s · toBase2 − base).
  struct ShiftedScores {
    llvm::SmallVector<Value> scores, bases; ///< bases by row
  };
  /// The scores with the maxima in the state as bases.
  ShiftedScores unshifted(llvm::ArrayRef<Value> scores);
  ShiftedScores chooseScores(Value condition, llvm::function_ref<ShiftedScores()> whenTrue,
                             llvm::function_ref<ShiftedScores()> whenFalse);
  struct LazyUpdate {
    ShiftedScores scores;
    Value updates; ///< whether some maximum of the warp was updated, i1
  };
  /// Updates the maxima in the state as far as `applyLazily` requires.
  LazyUpdate updateLazily(llvm::ArrayRef<Value> scores);
  /// The exponent of a maximum in the state.
  Value exponentOfMax(Value max);
  /// The maximum of a row after a tile, from its largest score and the maximum before.
  RowMax rowMaxAfter(Value tileMax, Value before);
  /// Updates the maxima in the state by the row maxima of a tile.
  llvm::SmallVector<RowMax> updateMaxima(llvm::ArrayRef<Value> tileMax);
  /// The maximum of each row over the elements of this thread, and over the lanes that share a row.
  llvm::SmallVector<Value> threadMaxima(llvm::ArrayRef<Value> scores);
  llvm::SmallVector<Value> rowMaxima(llvm::ArrayRef<Value> ofThread);
  /// The scores with `maxima` as bases, in a rarely taken branch shifted. `tileMax` are row maxima of the tile as
  /// scores.
  ShiftedScores shift(llvm::ArrayRef<Value> scores, llvm::ArrayRef<Value> tileMax, llvm::ArrayRef<RowMax> maxima);
  void updateArgmax(llvm::ArrayRef<Value> scores, Value first);

  //===--- Weights ---===//
  /// The base-2 exponent of the weight of each score. `perColumn` is the part of a linear bias in a column that the
  /// scores lack; null if there is none.
  llvm::SmallVector<Value> exponentsOf(const ShiftedScores &shifted, Value perColumn = {});
  /// Replaces scores by weights and adds them to the tallies. Returns the sum of the weights of each row.
  llvm::SmallVector<Value> computeWeights(llvm::SmallVectorImpl<Value> &scores, llvm::ArrayRef<Value> exponents,
                                          Value first);
  void applyWeightRegion(llvm::SmallVectorImpl<Value> &weights, Value first);
  void scaleTallies(llvm::ArrayRef<Value> factors);
  void addToTallies(unsigned i, Value score, Value weight, Value first);
  /// The weights of a normalizer.
  llvm::SmallVector<Value> normalize(llvm::SmallVectorImpl<Value> &scores, Value first);
  /// The weights of a final step.
  llvm::SmallVector<Value> applyFinal(llvm::SmallVectorImpl<Value> &scores, Value first);

  Emitter &e;
  attn::AccumulateOp op;
  const Fragment &fragment;
  const PrivateState &state;
  int64_t lanes;
  Rescale rescale;
  double maxGrowth; ///< the exponent by which scores may exceed the maximum of a row before it is updated
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_FRAGMENTSOFTMAX_H
