//===- GradientTile.h - The tiles of a gradient of attention ------*- C++ -*-===//
//
// Emits the gradients of a tile of queries: a loop over tiles of keys, each with five matmuls and an elementwise op.
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
  int64_t rows = 0, columns = 0;  ///< largest numbers of queries and keys of a tile
  GradientPositions at;           ///< the current head of the task
  Value validQueries;             ///< number of queries within the length
  Value queryStart, keyStart;     ///< of the sequence in the tensors
  Sequences sequences;
  CaptureGradients captures;
  MaskTables tables;

  /// Emits the bounds of a sequence and begins its KV head `kvHead`.
  void beginTask(Value sequence, Value kvHead);
  /// Begins query head `member` of the group.
  void beginHead(Value member);

  /// A slice of a tensor; batch and head may be dropped.
  struct Place {
    llvm::SmallVector<mlir::OpFoldResult> offsets, sizes;
    Value slice(GradientTile &emitter, Value tensor) const;
  };
  /// The slice of the task's sequence and of `heads` heads from `head` on, with all positions.
  Place placeOfHeads(attn::DimsAttr dims, attn::Role role, Value head, Value heads, int64_t headSize);

  /// Adds the gradients of the tile of queries at `begin` to `results`: the gradients of the queries of the group, and
  /// of the keys and values of the KV head; and the accumulators of the captures.
  llvm::SmallVector<Value> overKeys(Value begin, mlir::ValueRange results);

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
    Value begin; ///< relative
    Extent count;
    Matrix query, outputGradient;
    Value lse, delta; ///< of each query; the log-sum-exp in base 2, +inf for a row without keys
  };
  /// `count` positions from `begin` on of one head. `inBatch`, `head` are indices in the tensor.
  Place placeOfTile(attn::DimsAttr dims, mlir::OpFoldResult inBatch, Value head, Value begin,
                    mlir::OpFoldResult count, int64_t depth);
  Matrix matrix(Value tensor, attn::DimsAttr dims, const Place &place);
  Value insert(Value matrix, Value into, const Place &place);
  Value rowsOf(Value tensor, const Queries &queries, bool isLse);
  llvm::SmallVector<Value> overTile(const PairTile &tile, const Queries &queries, mlir::ValueRange sums);
  /// Weights and gradients of the scores of a tile of pairs, and what the captures need, from the products with keys and
  /// values.
  llvm::SmallVector<Value> evaluate(const PairTile &tile, const Queries &queries, Value scores, Value products);
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
