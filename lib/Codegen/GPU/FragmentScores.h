//===- FragmentScores.h - The scores of a register fragment -------*- C++ -*-===//
//
// Between the two matmuls of attention every thread holds a fragment of the scores in registers. The kernel defines the
// layout of the fragment; the code of score regions, masks and biases is common to all kernels.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_FRAGMENTSCORES_H
#define SACCADE_LIB_CODEGEN_GPU_FRAGMENTSCORES_H

#include "LinearBias.h"
#include "VisibleTiles.h"

namespace saccade::device {

/// The layout of a thread's scores: element e is at row row + rows[rowOf[e]], column column + columns[e] of the tile.
struct Fragment {
  mlir::Value row, column;            ///< i32, in the query tile and in the key tile
  llvm::SmallVector<int64_t> rows;    ///< distinct rows
  llvm::SmallVector<int64_t> columns; ///< of each element
  llvm::SmallVector<unsigned> rowOf;  ///< of each element
  /// Emits row and column again at a place that few threads reach, so that they take no registers elsewhere. May be
  /// null.
  std::function<std::pair<mlir::Value, mlir::Value>(Emitter &)> emit = {};

  /// The rows (index), and the column (i32), rematerialized at each use.
  llvm::SmallVector<mlir::Value> emitRows(Emitter &e) const;
  mlir::Value emitColumn(Emitter &e) const { return emit ? emit(e).second : e.optimizationBarrier(column); }
};

/// Emits the scores of one attn.accumulate.
class FragmentScores {
public:
  using Value = mlir::Value;

  /// `queries` and `keys` are the extents of the op's tile. Row r is query r or, with `heads`, query r / heads of head
  /// r mod heads.
  FragmentScores(Emitter &e, attn::AccumulateOp op, Fragment fragment, Value queries, Value keys, Value heads = {});

  /// Returns the range [begin, end) of the first keys of the tiles of `width` keys, i32, relative to key 0 of the op.
  /// Tiles start at absolute multiples of `width`, so that sums are independent of the offset of a call; the first tile
  /// may start before key 0.
  attn::KeyRange getTiles(int64_t width);

  /// Whether the tiles between the bounds are tested: the bounds are not the whole mask.
  bool testsTiles() const { return !bounds.isExact(); }
  /// Emits `body` for each of `tiles`, of `width` keys, in ascending order, except for those that a test finds empty.
  /// `start` is emitted before `body`, as `forEachVisibleTile` does.
  void forEachTile(
      attn::KeyRange tiles, int64_t width, llvm::function_ref<void(const KeyTile &)> body,
      llvm::function_ref<void(Value first)> start = [](Value) {});

  /// Evaluates the mask for the thread's elements of the tile at key `first`. Element i is visible if bit i mod 32 of
  /// word i / 32 (i32) is set. Elements of rows after the last query are not.
  llvm::SmallVector<Value> evaluateMask(Value first);
  size_t maskWords() const { return llvm::divideCeil(fragment.columns.size(), 32); }

  /// Converts the thread's `scores` (query · key) of the tile at key `first` to those of the score region, −∞ where the
  /// mask does not hold. Unless `isFull`, `visible` has the words of `evaluateMask`; if it is empty, the mask is
  /// evaluated here.
  void evaluate(llvm::SmallVectorImpl<Value> &scores, Value first, Value isFull, llvm::ArrayRef<Value> visible = {});

  /// Permits tanh with a relative error of 2^-11, if no result has the precision of f32.
  void permitApproximateTanh() { tanh = tanh == TanhMethod::Quotient ? TanhMethod::Instruction : tanh; }

  //===--- Products that start from a bias ---===//
  /// Permits that products start from a bias that is linear in the key (`initialScores`). Call it before the loop over
  /// tiles, and only if the softmax is speculative.
  void permitInitialScores();
  bool hasInitialScores() const { return bias.has_value(); }
  /// The values to which the products of query and key are to be added, in the order of `scores`: 0, or a part of the
  /// score region.
  llvm::SmallVector<Value> initialScores();
  /// `scores` with the other parts of the bias: of each row in the tile at key `first`, and of columns of a row.
  llvm::SmallVector<Value> addBias(llvm::ArrayRef<Value> scores, Value first);
  /// The same for `bases`, the exponents that are subtracted from those of each row: subtracts the parts of rows.
  /// Returns the exponent for `addColumns`.
  Value subtractBias(llvm::MutableArrayRef<Value> bases, Value first);
  /// Adds the part of a column of a row to x, as a multiple of `perColumn`. That is the slope, opaque to LLVM, which
  /// would keep its multiples in registers.
  Value addColumns(Value x, Value perColumn, unsigned row, int64_t column);

  //===--- What the weights of the scores depend on ---===//
  /// The factors from scores to base-2 exponents, and to the scores of the op.
  Value getToBase2() const { return toBase2; }
  double getToNatural() const { return toNatural; }
  /// Whether scores have other uses than their weights.
  bool haveOtherUses() const { return needsScores; }
  /// The absolute position of a row (index), or of each row, and of key `key` of the op.
  RowPosition positionOf(Value row);
  llvm::SmallVector<RowPosition> emitRowPositions();
  Value positionOfKey(Value key) { return e.add(at.key, e.toIndex(key)); }
  /// The columns of the elements (i32), rematerialized at each use.
  llvm::SmallVector<Value> emitColumns();

  attn::AccumulateOp op;
  const Fragment fragment;

private:
  /// The keys that are visible to some query in [firstQuery, lastQuery] of a head, relative to key 0 of the op, i32.
  /// The range may be empty.
  attn::KeyRange visibleKeys(Value head, Value firstQuery, Value lastQuery);
  /// The columns of the tile at key `first` that the bounds of the mask permit for each row (index), i32.
  llvm::SmallVector<attn::KeyRange> visibleColumns(Value first, llvm::ArrayRef<Value> rows);
  bool masksPerHead();
  void applyScoreRegion(llvm::SmallVectorImpl<Value> &scores, Value first);
  /// Passes the mask of each element of the tile at key `first` to `use`. `isRow` tells which rows have keys; if it is
  /// empty, all have.
  void forEachVisibility(Value first, llvm::ArrayRef<Value> rows, llvm::ArrayRef<Value> isRow,
                         llvm::function_ref<void(unsigned i, Value isVisible)> use);
  llvm::SmallVector<Value> mask(llvm::ArrayRef<Value> scores, Value first, llvm::ArrayRef<Value> visible);
  /// The column at which the part of a row is evaluated, and this part of each row.
  int64_t originOf(unsigned row) const;
  llvm::SmallVector<Value> biasesOfRows(Value first);

  Emitter &e;
  attn::Position at;
  Value queries, keys, heads;
  attn::KeyBounds bounds;
  attn::KeyRange visibleToAny, visibleToAll; ///< keys visible to some row, to all rows
  Value scale;                               ///< null if folded into toBase2
  Value toBase2;
  double toNatural = 1;
  bool keepsFactors = false; ///< whether the common factor of score regions stays in scores
  bool needsScores;
  TanhMethod tanh;                ///< of score regions
  std::optional<LinearBias> bias; ///< that the score region is, if `initialScores` has a part of it
  double biasScale = 1;           ///< 1 / scale of the scores that start with it
  Value slope;                    ///< of `bias`, times `biasScale`
  int64_t initialColumns = 8;     ///< from which `initialScores` repeat
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_FRAGMENTSCORES_H
