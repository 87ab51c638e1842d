//===- LinearChunk.h - One chunk of linear attention --------------*- C++ -*-===//
//
// Emits the matrix computations of one chunk as structured ops on temporaries, for the tilings of linear attention. A
// matrix has a row for each of the `size` positions of the chunk, and is allocated for the maximum chunk size.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_LINEARCHUNK_H
#define SACCADE_LIB_TILING_LINEARCHUNK_H

#include "StructuredEmitter.h"

namespace saccade {

/// The decay factors of the positions of a chunk, null without decay. They differ by row of the state ([positions, d]
/// and [d]) or not ([positions] and a scalar tensor).
struct ChunkDecay {
  mlir::Value each;
  mlir::Value between;  ///< D[i, j], the product over j + 1 … i, 0 for j > i: [positions, positions]; null if by row
  mlir::Value entering; ///< the products over the positions up to i
  mlir::Value leaving;  ///< the products over the positions after i
  mlir::Value whole;    ///< the product over the chunk

  /// Loops of the positions and the rows of the state in a factor, and those of the rows in `whole`.
  llvm::SmallVector<unsigned> loops(unsigned position, unsigned row) const {
    return between ? llvm::SmallVector<unsigned>{position} : llvm::SmallVector<unsigned>{position, row};
  }
  llvm::SmallVector<unsigned> loopsOfWhole(unsigned row) const {
    return between ? llvm::SmallVector<unsigned>{} : llvm::SmallVector<unsigned>{row};
  }
};

/// Emits computations on chunks of at most `rows` positions in `type`.
struct ChunkEmitter : StructuredEmitter {
  ChunkEmitter(mlir::OpBuilder &b, mlir::Location loc, mlir::FloatType type, mlir::FloatType productType)
      : StructuredEmitter(b, loc, type), productType(productType) {}

  /// Positions of a chunk. With 64 and heads of 64 the matmuls within a chunk cost about as much as those with the
  /// state.
  int64_t rows = 64;
  /// Positions of a block of a chunk, within which decays by row and triangular systems are computed without matmuls.
  static constexpr int64_t blockRows = 16;

  mlir::FloatType productType; ///< of the operands of matmuls
  mlir::OpFoldResult size;     ///< number of positions in the current chunk

  /// A temporary of shape `shape`; -1 stands for the positions of the chunk.
  Value temporary(llvm::ArrayRef<int64_t> shape, mlir::Type element = nullptr);
  Value filled(llvm::ArrayRef<int64_t> shape, double value);
  using StructuredEmitter::filled;

  /// x in `productType`, if it is in `type`.
  Value asOperand(Value x);
  /// sums + Σ lhs · rhs, where loops 0, 1, 2 are m, n, k. The operands are rounded to `productType`.
  Value matmul(const IndexedOperand &lhs, const IndexedOperand &rhs, Value sums);
  /// The same for one column, as a structured op that is not a matmul: register tiles would be wasted on it.
  Value matrixVector(const IndexedOperand &lhs, const IndexedOperand &rhs, Value sums);
  /// sums + the row sums of factors[0] or of factors[0] · factors[1]; loop 0 is the row, loop 1 is reduced.
  Value rowSums(llvm::ArrayRef<IndexedOperand> factors, Value sums);
  /// x · factor, element by element, in place.
  Value scaled(Value x, const IndexedOperand &factor);
  /// The matrix x · `factor` · `scale` with `columns` columns, where `factor` is one of `decay` or null for 1.
  Value decayed(Value x, const ChunkDecay &decay, Value factor, int64_t columns, double scale = 1);
  /// x + y, in place of x.
  Value sum(Value x, Value y);
  using StructuredEmitter::sum;

  Value row(Value matrix, Value position);
  Value insertRow(Value row, Value matrix, Value position);
  /// A block of a matrix.
  struct Block {
    mlir::OpFoldResult row, column, rows, columns;
  };
  Block rowsFrom(Value matrix, mlir::OpFoldResult first, mlir::OpFoldResult count);
  Value block(Value matrix, const Block &at);
  Value insertBlock(Value block, Value matrix, const Block &at);

  /// The products of the decay factors `each`, [positions] or, if `isMatrix`, [positions, columns].
  ChunkDecay decayOf(Value each, bool isMatrix);
  /// Σ_d query[i, d] · keys[j, d] · Π_{t=j+1..i} each[t, d] for j ≤ i, else 0, for each of the `queries`.
  llvm::SmallVector<Value> decayedScores(mlir::ValueRange queries, Value keys, Value each);
  /// The gradients of query and keys in these scores, whose gradient is `weights`, 0 for j > i: adds
  /// Σ_j weights[i, j] · keys[j] · Π_{t=j+1..i} each[t] to `queryGradient`, and the products with the transposes to
  /// `keyGradient`.
  std::pair<Value, Value> scoreGradients(Value weights, Value query, Value keys, Value each, Value queryGradient,
                                         Value keyGradient);
  /// x where j ≤ i (j < i with `isStrict`), else 0; x is [positions, positions]. In place.
  Value lowerTriangle(Value x, bool isStrict);
  /// The same for an element, in the body of an op with the loops i and j.
  Value elementOfTriangle(Value element, bool isStrict);
  /// The inverse of I − `strictlyLower`, [positions, positions].
  Value inverse(Value strictlyLower);

private:
  using BlockBody =
      llvm::function_ref<llvm::SmallVector<Value>(Value first, mlir::OpFoldResult count, mlir::ValueRange carried)>;
  using PositionBody = llvm::function_ref<llvm::SmallVector<Value>(Value i, Value left, mlir::ValueRange carried)>;
  /// Runs `body` over the blocks of the chunk.
  llvm::SmallVector<Value> overBlocks(mlir::ValueRange inits, bool isForward, BlockBody body);
  /// Runs `body` for the positions i of a block of `count`, with x[j] · Π_{t=j+1..i} each[t] for j ≤ i or, if not
  /// `isForward`, from the last to the first with x[j] · Π_{t=i+1..j} each[t] for j ≥ i.
  llvm::SmallVector<Value> overPositions(Value each, Value x, mlir::OpFoldResult count, bool isForward,
                                         mlir::ValueRange inits, PositionBody body);
  /// Extends `known`, the keys before a block of `count` positions decayed to its beginning, to its end.
  Value keysUpTo(Value known, Value keys, Value decays, Value first, mlir::OpFoldResult count);
  Value queryGradients(Value weights, Value keys, Value each, Value sums);
  Value keyGradients(Value weights, Value query, Value each, Value sums);
  Value product(Value x, Value factors, mlir::OpFoldResult count);
  /// Row i is the product of rows 0 … i of `decay` or, if not `isForward`, of the rows after i. [length, columns]
  Value cumulativeProducts(Value decay, mlir::OpFoldResult length, int64_t bound, bool isForward);
  Value decayMask(Value decay);
  /// A temporary of `count` rows, at most `bound`.
  Value matrixOf(mlir::OpFoldResult count, int64_t bound, int64_t columns);
  /// `matmul` without rounding of the operands.
  Value exactMatmul(const IndexedOperand &lhs, const IndexedOperand &rhs, Value sums);
  /// e[i] + Σ_j factors[i, j] · known[j], where the factors for j ≥ i are 0.
  Value substituted(Value known, Value factors, Value i);
  int64_t columnsOf(Value matrix) { return llvm::cast<mlir::ShapedType>(matrix.getType()).getDimSize(1); }
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_LINEARCHUNK_H
