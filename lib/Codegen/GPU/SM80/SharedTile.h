//===- SharedTile.h - A tile of 16-bit numbers for the tensor cores -*- C++ -*-===//
//
// Rows of a matrix in shared memory, brought there without passing through registers, and read as the fragments that
// mma.sync wants.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_SHAREDTILE_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_SHAREDTILE_H

#include "../GlobalMatrix.h"
#include "llvm/Support/MathExtras.h"

namespace saccade::device {

/// `rows` × `columns` elements, row-major. A row is padded by 16 bytes, so that eight rows that follow one another lie in
/// different banks, and no address needs more than a constant offset (a swizzle costs an instruction for every address).
class SharedTile {
public:
  using Value = mlir::Value;

  /// The columns of a tile for `columns` elements: the tensor cores take 16 at a time, the rest is 0.
  static int64_t paddedColumns(int64_t columns) { return llvm::alignTo(columns, 16); }
  static int64_t bytes(int64_t rows, int64_t columns) { return rows * (paddedColumns(columns) + 8) * 2; }

  /// A tile of `bytes(rows, columns)` bytes that begins at byte `offset` of `shared`.
  SharedTile(Emitter &e, Value shared, int64_t offset, mlir::Type element, int64_t rows, int64_t columns);

  /// All threads bring the rows [first, first + rows) of `matrix`; what is outside of it is 0, and nothing is read
  /// there. Asynchronously where `isAligned` (to 16 bytes; null for never) holds: done after `commit`, `wait` and a barrier.
  void copy(Emitter &e, const GlobalMatrix &matrix, Value isAligned, Value first) const;
  /// The same of the elements from row `firstRow` and column `firstColumn` on, of which those below `endRow` and `endColumn`
  /// are in the matrix; `firstColumn` is a multiple of 8.
  void copyPart(Emitter &e, const GlobalMatrix &matrix, Value isAligned, Value firstRow, Value endRow, Value firstColumn,
                Value endColumn) const;
  /// Makes the copies of this thread since the last time something that can be waited for.
  static void commit(Emitter &e);
  /// Waits until all of that is done.
  static void wait(Emitter &e);

  //===--- Fragments of 16 × 16 elements, as four registers (i32) ---===//
  // Where a lane looks (i32, pinned) is asked for once before many fragments, which differ by constants from it.
  /// For `left`, `right` and `loadRhsTransposed`, from row `row` (i32, the same for all lanes) on, and for the last one from
  /// column `column` (likewise) on.
  Value lhsAddress(Emitter &e, Value row) const;
  Value rhsAddress(Emitter &e, Value row) const;
  Value rhsTransposedAddress(Emitter &e, Value row, Value column = {}) const;
  /// The left side of a product: rows `row` and column `k` on.
  llvm::SmallVector<Value> left(Emitter &e, Value address, int64_t row, int64_t k) const;
  /// The right sides of two products, (k, n) with n along the rows of the tile: {k0, k8} of the first eight n, then of
  /// the others.
  llvm::SmallVector<Value> right(Emitter &e, Value address, int64_t n, int64_t k) const;
  /// The same with k along the rows.
  llvm::SmallVector<Value> loadRhsTransposed(Emitter &e, Value address, int64_t k, int64_t n) const;

private:
  llvm::SmallVector<Value> loadMatrices(Emitter &e, Value address, int64_t row, int64_t column, bool isTransposed) const;
  /// The address of what a lane looks at: rows (lane mod 8) + 8 · bit `rowBit` of the lane, columns 8 · bit `columnBit`.
  Value laneAddress(Emitter &e, Value row, unsigned rowBit, unsigned columnBit, Value column = {}) const;
  /// The address of an element, i32 and pinned.
  Value opaqueAddress(Emitter &e, Value row, Value column) const;
  Value toPointer(Emitter &e, Value address, int64_t elements) const;
  void copyAsync(Emitter &e, const GlobalMatrix &matrix, Value first) const;
  void copyElements(Emitter &e, const GlobalMatrix &matrix, Value first) const;

  Value base; ///< !llvm.ptr<3>
  mlir::Type element;
  int64_t rows, columns, padded, pitch;
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_SHAREDTILE_H
