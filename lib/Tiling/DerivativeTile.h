//===- DerivativeTile.h - The tiles of derivatives of attention ---*- C++ -*-===//
//
// What gradients and tangents of attention have in common: tasks, the tiles of queries and keys that a mask bounds, and
// the probability of a pair. A tile consists of matmuls and an elementwise op.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_DERIVATIVETILE_H
#define SACCADE_LIB_TILING_DERIVATIVETILE_H

#include "MaskTables.h"
#include "PairTile.h"
#include "Sequences.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"

namespace saccade {

/// Emits tasks and tiles of `attention`. Positions are relative to element 0 of the sequence, unless they are called
/// absolute.
class DerivativeTile : protected StructuredEmitter {
protected:
  using Dims = llvm::ArrayRef<attn::Dim>;

  /// `onDevice`: a task computes the starts of ragged sequences.
  DerivativeTile(mlir::OpBuilder &b, attn::DerivativeOpInterface op, bool onDevice);
  /// Fails with a diagnostic without a schedule or static head sizes.
  llvm::LogicalResult check();

  // --- tasks

  /// Emits `lse` and `lseLow`.
  void convertLse();
  /// Emits the bounds of sequence `batch` and begins its KV head `kvHead`.
  void beginTask(Value batch, Value kvHead);
  /// The same for a query head.
  void beginTaskOfHead(Value batch, Value head);
  /// Begins query head `member` of the group.
  void beginHead(Value member);

  /// An uninitialized tensor of these extents; 0 if it is ragged, since rows may belong to no sequence.
  Value emptyResult(llvm::ArrayRef<mlir::OpFoldResult> extents, mlir::Type element, attn::Role role);
  /// A parallel loop over sequences, heads and, if operands are dense, tiles of `tile` positions (0: none).
  mlir::scf::ForallOp tasks(mlir::OpFoldResult heads, Value positions, int64_t tile, mlir::ValueRange inits);
  /// The slice of a result that a task computes: of the tile in `loop` if it has one.
  Place placeOf(mlir::scf::ForallOp loop, Dims dims, attn::Role role, Value head, Value heads, int64_t headSize,
                bool isTiled, int64_t tile);
  void insertSlices(mlir::scf::ForallOp loop, mlir::ValueRange results, llvm::ArrayRef<Place> places);

  /// A result with a row for each query.
  struct RowResult {
    Value init;
    llvm::SmallVector<attn::Dim> dims;
    int64_t headSize; ///< extent of dimension `d`
  };
  /// Emits tasks for tiles of queries of one head, and for all queries of a ragged sequence. `body` stores the rows of
  /// the tile at `begin` in slices of the results, filled with 0, at `to`.
  mlir::scf::ForallOp
  overQueryTiles(llvm::ArrayRef<RowResult> results,
                 llvm::function_ref<llvm::SmallVector<Value>(Value begin, mlir::ValueRange results, Value to)> body);

  // --- slices

  /// A matrix of positions × head size, and whether its dimensions are swapped.
  struct Matrix {
    Value value;
    bool isTransposed;
    /// The operand of a structured op whose loop `position` indexes positions.
    IndexedOperand over(unsigned position, unsigned depth) const {
      return {value, isTransposed ? llvm::SmallVector<unsigned>{depth, position}
                                  : llvm::SmallVector<unsigned>{position, depth}};
    }
  };
  /// The slice of the task's sequence and of `heads` heads from `first` on, with all positions.
  Place placeOfHeads(Dims dims, attn::Role role, Value first, Value heads, int64_t headSize);
  /// `count` positions from `begin` on of one head. `inBatch`, `head` are indices in the tensor.
  Place placeOfTile(Dims dims, mlir::OpFoldResult inBatch, Value head, Value begin, mlir::OpFoldResult count,
                    int64_t headSize);
  Matrix matrix(Value tensor, Dims dims, const Place &place);
  /// The tile of queries, or of keys or values, of the current head.
  Matrix queriesOf(Value tensor, Dims dims, const PairTile &tile, int64_t headSize);
  Matrix keysOf(Value tensor, Dims dims, const PairTile &tile, int64_t headSize);
  /// The numbers of a tensor with one for each row; null if `tensor` is.
  Value rowsOf(Value tensor, const PairTile &tile);
  Value insert(Value matrix, Value into, const Place &place);
  /// Rounds the sums of a tile, a matrix or a number for each row, and stores them in `into`. `inHead`: the head in it.
  Value store(Value sums, Value into, Dims dims, Value inHead, Value begin, mlir::OpFoldResult count, int64_t headSize);

  // --- pairs

  /// A query and a key: the score before the score region, the probability (with a normalizer of each score, the score
  /// after the region) and the weight, 0 if it is not visible. With stick_breaking the last two follow from other keys
  /// too, and `stick` has the score after the region.
  struct Pair {
    Value score, probability, weight, stick;
    Value isVisible; ///< null if all are
  };
  /// The log-sum-exp of a row, or of the rows of a tile.
  struct RowLse {
    Value lse, low; ///< of `lse` and `lseLow`
  };
  RowLse lseOf(const PairTile &tile) { return {rowsOf(lse, tile), rowsOf(lseLow, tile)}; }
  /// `product` is that of query and key, `i` and `j` are absolute.
  Pair evaluatePair(Value i, Value j, Value product, const RowLse &row);
  /// `value`, or 0 if the pair is not visible.
  Value ifVisible(const Pair &pair, Value value);
  /// Clones the body of a region and returns the values that it yields.
  llvm::SmallVector<Value> inlineRegion(mlir::Region &region, llvm::ArrayRef<Value> numbers, Value query, Value key);
  Value scale();

  // --- tiles

  using Body = llvm::function_ref<llvm::SmallVector<Value>()>;
  /// `body()`, or `sums` if no pair of the tile is visible.
  llvm::SmallVector<Value> whereVisible(const PairTile &tile, mlir::ValueRange sums, Body body);
  /// Emits a loop over the tiles of keys that the `count` queries at `begin` may see, the last tile first if
  /// `isDescending`.
  llvm::SmallVector<Value>
  overKeyTiles(Value begin, const Extent &count, mlir::ValueRange sums,
               llvm::function_ref<llvm::SmallVector<Value>(const PairTile &, mlir::ValueRange)> body,
               bool isDescending = false);
  /// The extent of the tile of queries, or of keys, at `begin`.
  Extent queryExtent(Value begin);
  Extent keyExtent(Value begin);
  /// temporary = lhs · rhs over `headSize`, a matrix of pairs.
  Value product(const PairTile &tile, const Matrix &lhs, const Matrix &rhs, int64_t headSize);
  attn::ScheduleAttr block(int64_t rows, int64_t columns, int64_t depth);
  /// 2^`exponent` of the type of scores, 0 if it is tiny. NaN stays NaN.
  Value emitProbability(Value exponent);

  bool onDevice;
  int64_t depth, valueDepth;
  int64_t rows = 0, columns = 0; ///< largest numbers of queries and keys of a tile
  TaskPositions at;              ///< the current head of the task
  Value validQueries, validKeys; ///< numbers of queries and keys within the lengths
  Value queryStart, keyStart;    ///< of the sequence in the tensors
  Sequences sequences;
  Value lse;    ///< the log-sum-exp, +inf for a row without keys; set before the loop
  Value lseLow; ///< what its rounding took, as a base-2 exponent

private:
  /// Whether some pair of the tile may be visible, an i1; null if the bounds of the key loop express the mask.
  Value mayBeVisible(const PairTile &tile);

  attn::DerivativeOpInterface attention;
  MaskTables tables;
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_DERIVATIVETILE_H
