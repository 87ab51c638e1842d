//===- LinearChunk.h - The arithmetic of one chunk of linear attention -*- C++ -*-===//
//
// Small matrices of a chunk of positions as structured ops on temporaries, for TileLinear. A matrix has a row for each
// of the `size` positions of the chunk; its memory is as large as a chunk can be.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_LINEARCHUNK_H
#define SACCADE_LIB_TILING_LINEARCHUNK_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Support/IndexEmitter.h"

namespace saccade {

/// Emits computations on chunks of at most `rows` positions in `type`.
struct ChunkEmitter : IndexEmitter {
  ChunkEmitter(mlir::OpBuilder &b, mlir::Location loc, mlir::FloatType type, int64_t rows)
      : IndexEmitter(b, loc), type(type), rows(rows) {}

  mlir::FloatType type;
  int64_t rows;
  mlir::OpFoldResult size; ///< positions of the chunk at hand

  /// An operand of a structured op and the loops that walk along its dimensions.
  struct IndexedOperand {
    Value value;
    llvm::SmallVector<unsigned> loops;
  };
  using Element = llvm::function_ref<llvm::SmallVector<Value>(mlir::ValueRange)>;

  Value number(double value);
  /// A temporary with `shape`; -1 stands for the positions of the chunk.
  Value temporary(llvm::ArrayRef<int64_t> shape);
  Value filled(llvm::ArrayRef<int64_t> shape, double value);
  Value asIndex(mlir::OpFoldResult value);

  /// What `element` makes of the elements of `inputs` and `outputs`, in loops of which the last `reductions` are reductions.
  llvm::SmallVector<Value> apply(unsigned loops, unsigned reductions, llvm::ArrayRef<IndexedOperand> inputs,
                                 llvm::ArrayRef<IndexedOperand> outputs, Element element);
  /// sums + Σ x · y: loops m, n, k are numbers 0, 1, 2 of the walks.
  Value product(const IndexedOperand &x, const IndexedOperand &y, Value sums);
  /// sums + Σ x · y or Σ x along loop 1, one for every value of loop 0.
  Value rowSums(llvm::ArrayRef<IndexedOperand> factors, Value sums);
  /// x · factor, element by element, in place.
  Value scaled(Value x, const IndexedOperand &factor);

  /// The part of `tensor` that offsets and sizes name, without the dimensions that `isKept` says no of.
  Value part(Value tensor, llvm::ArrayRef<mlir::OpFoldResult> offsets, llvm::ArrayRef<mlir::OpFoldResult> sizes,
             llvm::ArrayRef<bool> isKept);
  Value row(Value matrix, Value position);
  Value insertRow(Value row, Value matrix, Value position);

  /// Row i is the product of rows 0 ... i of `decay`, or (not `isForward`) of those behind i.
  Value cumulativeProducts(Value decay, int64_t columns, bool isForward);
  /// D[i, j] is the product of decay j + 1 ... i, 1 at i = j, 0 for j > i.
  Value decayMask(Value decay);
  /// Σ_d x[i, d] · keys[j, d] · (product of decay j + 1 ... i in row d), for j ≤ i, else 0.
  Value decayedProduct(Value x, Value keys, Value decay, int64_t columns);
  /// u[i] = v[i] − beta[i] Σ_{j<i} matrix[i, j] u[j], in place of v.
  Value solve(Value matrix, Value beta, Value v, int64_t columns);
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_LINEARCHUNK_H
