//===- GradientTile.h - The tiles of a gradient of attention ------*- C++ -*-===//
//
// Emits the gradients of a tile of queries or of a tile of keys: a loop over tiles of the other operand, each with
// matmuls and an elementwise op.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_GRADIENTTILE_H
#define SACCADE_LIB_TILING_GRADIENTTILE_H

#include "CaptureGradients.h"
#include "DerivativeTile.h"

namespace saccade {

/// Emits tiles of `op`.
struct GradientTile : DerivativeTile {
  GradientTile(mlir::OpBuilder &b, attn::GradientOp op, bool onDevice);

  attn::GradientOp op;
  /// Whether tiles have only the keys before the last one that bounds of the mask admit, so that a tile that a diagonal
  /// crosses is smaller.
  bool limitsKeys;
  CaptureGradients captures;

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
  /// With stick_breaking: stores the gradients of the tile of queries at `begin` of head `member` of the group, and
  /// adds to those of keys, values and captures.
  Gradients overSticks(Value member, Value begin, Gradients results);

private:
  /// What the keys that have been visited leave in the rows of a tile: the sum of −log2(1 − σ), and that of the
  /// products g.
  struct StickRows {
    Value later, products;
  };
  /// Visits the keys of a tile, the last one first. `scores` and `products` are matrices of keys × queries. With
  /// `total`, the sum of the products of a row, the results after those of the rows are weights, gradients of scores
  /// and `captureTypes`.
  llvm::SmallVector<Value> breakSticks(const PairTile &tile, Value scores, Value products, const StickRows &rows,
                                       Value total, llvm::ArrayRef<mlir::Type> captureTypes);
  llvm::SmallVector<Value> breakStick(Value i, Value j, mlir::ValueRange args);
  struct Queries {
    Matrix query, outputGradient;
    RowLse row;  ///< of each query
    Value delta; ///< of each query
  };
  struct Keys {
    Matrix key, value;
  };
  Queries queriesOf(const PairTile &tile);
  Keys keysOf(const PairTile &tile);
  /// The keys of the tile before the last one that a query of it may attend to.
  mlir::OpFoldResult countVisibleKeys(const PairTile &tile);
  /// The first `count` positions of a matrix.
  Place firstRows(Value matrix, mlir::OpFoldResult count, bool isTransposed = false);
  /// Adds the tile to `sums`, matrices of its queries, keys and values. `keys`, `sums.key` and `sums.value` have the
  /// keys of the tile first.
  Gradients addTile(const PairTile &tile, const Queries &queries, Keys keys, const Gradients &sums);
  /// Weights and gradients of the scores of a tile of pairs, and `captureTypes`, what the captures need, from the
  /// products with keys and values.
  llvm::SmallVector<Value> evaluate(const PairTile &tile, const Queries &queries, Value scores, Value products,
                                    llvm::ArrayRef<mlir::Type> captureTypes);
  llvm::SmallVector<Value> evaluatePair(Value i, Value j, mlir::ValueRange args);
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_GRADIENTTILE_H
