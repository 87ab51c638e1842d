//===- LinearChunk.h - One chunk of linear attention --------------*- C++ -*-===//
//
// Emits the matrix computations of one chunk as structured ops on temporaries, for TileLinear. A matrix has a row for
// each of the `size` positions of the chunk, and is allocated for the maximum chunk size.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_LINEARCHUNK_H
#define SACCADE_LIB_TILING_LINEARCHUNK_H

#include "StructuredEmitter.h"

namespace saccade {

/// Emits computations on chunks of at most `rows` positions in `type`.
struct ChunkEmitter : StructuredEmitter {
  ChunkEmitter(mlir::OpBuilder &b, mlir::Location loc, mlir::FloatType type, int64_t rows)
      : StructuredEmitter(b, loc, type), rows(rows) {}

  int64_t rows;
  mlir::OpFoldResult size; ///< number of positions in the current chunk

  /// A temporary of shape `shape`; -1 stands for the positions of the chunk.
  Value temporary(llvm::ArrayRef<int64_t> shape);
  Value filled(llvm::ArrayRef<int64_t> shape, double value);

  /// sums + Σ lhs · rhs, where loops 0, 1, 2 are m, n, k.
  Value matmul(const IndexedOperand &lhs, const IndexedOperand &rhs, Value sums);
  /// The same for one column, as a structured op that is not a matmul: register tiles would be wasted on it.
  Value matrixVector(const IndexedOperand &lhs, const IndexedOperand &rhs, Value sums);
  /// sums + the row sums of factors[0] or of factors[0] · factors[1]; loop 0 is the row, loop 1 is reduced.
  Value rowSums(llvm::ArrayRef<IndexedOperand> factors, Value sums);
  /// x · factor, element by element, in place.
  Value scaled(Value x, const IndexedOperand &factor);

  Value row(Value matrix, Value position);
  Value insertRow(Value row, Value matrix, Value position);

  /// Row i is the product of rows 0 ... i of `decay` or, if not `isForward`, of the rows after i.
  Value cumulativeProducts(Value decay, int64_t columns, bool isForward);
  /// D[i, j] = Π_{t=j+1..i} decay[t] for j ≤ i, else 0.
  Value decayMask(Value decay);
  /// Σ_d x[i, d] · keys[j, d] · Π_{t=j+1..i} decay[t, d] for j ≤ i, else 0.
  Value decayedMatmul(Value x, Value keys, Value decay, int64_t columns);
  /// sums[i] + Σ_j weights[i, j] · values[j] · Π_{t=j+1..i} decay[t] over j ≤ i or, if not `isForward`, with the
  /// transposes of the weights and of the products of decays, over j ≥ i.
  Value decayedSums(Value weights, Value values, Value decay, int64_t columns, bool isForward, Value sums);
  /// Solves u[i] = v[i] − beta[i] Σ_{j<i} matrix[i, j] u[j] by forward substitution, in place in v.
  Value solveTriangular(Value matrix, Value beta, Value v, int64_t columns);
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_LINEARCHUNK_H
