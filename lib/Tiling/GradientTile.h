//===- GradientTile.h - The tiles of a gradient of attention ------*- C++ -*-===//
//
// Emits the gradients of a tile of queries or of a tile of keys: a loop over tiles of the other operand, each with
// matmuls and an elementwise op.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_GRADIENTTILE_H
#define SACCADE_LIB_TILING_GRADIENTTILE_H

#include "CaptureGradients.h"
#include "MaskTables.h"
#include "Sequences.h"
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"

namespace saccade {

/// Emits tiles of `op`. Positions are relative to element 0 of the sequence, unless they are called absolute.
struct GradientTile : StructuredEmitter {
  /// `onDevice`: a task computes the starts of ragged sequences.
  GradientTile(mlir::OpBuilder &b, attn::GradientOp op, bool onDevice);

  attn::GradientOp op;
  int64_t depth, valueDepth;
  int64_t rows = 0, columns = 0; ///< largest numbers of queries and keys of a tile
  /// Whether tiles have only the keys before the last one that bounds of the mask admit, so that a tile that a diagonal
  /// crosses is smaller.
  bool limitsKeys;
  GradientPositions at;          ///< the current head of the task
  Value validQueries, validKeys; ///< numbers of queries and keys within the lengths
  Value queryStart, keyStart;    ///< of the sequence in the tensors
  Sequences sequences;
  Value lse; ///< the log-sum-exp in base 2, +inf for a row without keys; set before the loop
  CaptureGradients captures;
  MaskTables tables;

  /// Emits `lse`.
  void convertLse();
  /// Emits the bounds of a sequence and begins its KV head `kvHead`.
  void beginTask(Value sequence, Value kvHead);
  /// The same for a query head.
  void beginTaskOfHead(Value sequence, Value head);
  /// Begins query head `member` of the group.
  void beginHead(Value member);

  /// The slice of the task's sequence and of `heads` heads from `head` on, with all positions.
  Place placeOfHeads(attn::DimsAttr dims, attn::Role role, Value head, Value heads, int64_t headSize);

  Value insert(Value part, Value into, const Place &place);

  /// Gradients that a task computes: of the queries of the group, of keys and values of the KV head, null if it does
  /// not compute them; and the accumulators of the captures.
  struct Gradients {
    Value query, key, value;
    bool isQueryTransposed = false; ///< of a matrix of one head
    llvm::SmallVector<Value> captures;
    llvm::SmallVector<Value> getValues() const;
    /// The same gradients with other values.
    Gradients with(mlir::ValueRange values) const;
  };
  /// Stores the gradients of the tile of queries at `begin` of the current head in `result`, at `to`.
  Value overKeys(Value begin, Value result, Value to);
  /// Stores the gradients of the tile of keys and values at `begin` in `results`, at `to`. Adds to those of queries and
  /// captures.
  Gradients overQueries(Value begin, Gradients results, Value to);

private:
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
  struct Queries {
    Matrix query, outputGradient;
    Value lse, delta; ///< of each query
  };
  struct Keys {
    Matrix key, value;
  };
  Queries queriesOf(const PairTile &tile);
  Keys keysOf(const PairTile &tile);
  /// `count` positions from `begin` on of one head. `inBatch`, `head` are indices in the tensor.
  Place placeOfTile(attn::DimsAttr dims, mlir::OpFoldResult inBatch, Value head, Value begin, mlir::OpFoldResult count,
                    int64_t depth);
  Matrix matrix(Value tensor, attn::DimsAttr dims, const Place &place);
  Value rowsOf(Value tensor, const PairTile &tile);
  /// Rounds the sums of a tile and stores them in `into`. `inHead`: the head in `into`.
  Value store(Value sums, Value into, attn::DimsAttr dims, Value inHead, Value begin, mlir::OpFoldResult count,
              int64_t headSize);
  /// The keys of the tile before the last one that a query of it may attend to.
  mlir::OpFoldResult countVisibleKeys(const PairTile &tile);
  /// The first `count` positions of a matrix.
  Place firstRows(Value matrix, mlir::OpFoldResult count, bool isTransposed = false);
  /// Adds the tile to `sums`, matrices of its queries, keys and values. `keys`, `sums.key` and `sums.value` have the
  /// keys of the tile first.
  Gradients addTile(const PairTile &tile, const Queries &queries, Keys keys, const Gradients &sums);
  /// `body(sums)`, or `sums` if no pair of the tile is visible.
  Gradients whereVisible(const PairTile &tile, const Gradients &sums, llvm::function_ref<Gradients()> body);
  /// Weights and gradients of the scores of a tile of pairs, and `captureTypes`, what the captures need, from the
  /// products with keys and values.
  llvm::SmallVector<Value> evaluate(const PairTile &tile, const Queries &queries, Value scores, Value products,
                                    llvm::ArrayRef<mlir::Type> captureTypes);
  /// 2^`exponent` of the type of scores, 0 if it is tiny. NaN stays NaN.
  Value emitProbability(Value exponent);
  llvm::SmallVector<Value> evaluatePair(Value i, Value j, mlir::ValueRange args);
  /// Clones the body of a region and returns the values that it yields.
  llvm::SmallVector<Value> inlineRegion(mlir::Region &region, llvm::ArrayRef<Value> numbers, Value query, Value key);
  Value scale();
  /// Whether some pair of the tile may be visible, an i1; null if the bounds of the key loop express the mask.
  Value mayBeVisible(const PairTile &tile);
  attn::ScheduleAttr block(int64_t rows, int64_t columns, int64_t depth);
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_GRADIENTTILE_H
