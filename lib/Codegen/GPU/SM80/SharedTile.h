//===- SharedTile.h - A tile of 16-bit elements in shared memory --*- C++ -*-===//
//
// Rows of a matrix are copied to shared memory by cp.async, bypassing registers, and loaded as fragments of mma.sync.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_SHAREDTILE_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_SHAREDTILE_H

#include "../GlobalMatrix.h"
#include "llvm/Support/MathExtras.h"

namespace saccade::device {

/// `rows` × `columns` elements, row-major. Rows are padded by 16 bytes, so that eight consecutive rows are in different
/// banks and addresses differ by constant offsets (a swizzle takes an instruction per address).
class SharedTile {
public:
  using Value = mlir::Value;

  /// `columns` rounded up to the 16 columns that tensor cores multiply at a time; the padding is 0.
  static int64_t paddedColumns(int64_t columns) { return llvm::alignTo(columns, 16); }
  static int64_t bytes(int64_t rows, int64_t columns) { return rows * (paddedColumns(columns) + 8) * 2; }

  /// A tile of `bytes(rows, columns)` bytes at byte `offset` of `shared`.
  SharedTile(Emitter &e, Value shared, int64_t offset, mlir::Type element, int64_t rows, int64_t columns);
  /// A part of a buffer in shared memory that begins at `base`, with rows `pitch` elements apart, for loads of
  /// fragments only.
  SharedTile(Value base, mlir::Type element, int64_t rows, int64_t columns, int64_t pitch)
      : base(base), element(element), rows(rows), columns(columns), padded(columns), pitch(pitch) {}

  /// The copies of a matrix by a thread, as far as they are the same for all tiles.
  struct Copies {
    const GlobalMatrix &matrix;
    Value isAligned; ///< to 16 bytes; null means false
    // For tiles of which all rows exist. Null if rows have no common stride, or threads not the same number of vectors.
    Value source; ///< address of the thread's vector in row 0, i64
    Value target; ///< offset in the tile of the thread's first vector in bytes, i32, opaque to LLVM
    Value stride; ///< of rows in bytes, i32
    Value end;    ///< tiles with a first row below `end`, as unsigned numbers, are whole, i32; 0 if not `isAligned`
  };
  /// Call it before the loop over tiles. Tiles with as many columns as `like` share a register with its copies.
  Copies prepare(Emitter &e, const GlobalMatrix &matrix, const Copies *like = nullptr) const;
  /// All threads copy the rows [first, first + rows) of a matrix; `first` is i32. Rows outside of the matrix are not
  /// read and set to 0. The copy is asynchronous if `isAligned` holds, and complete after `commit`, `wait` and a
  /// barrier. Elements that are computed are stored through registers.
  void copy(Emitter &e, const Copies &copies, Value first) const;
  /// Like `copy`, for the tile at row `firstRow` and column `firstColumn` (a multiple of 8) of a matrix that ends at
  /// `endRow` and `endColumn`. A matrix in shared memory is copied through registers.
  void copyPart(Emitter &e, const GlobalMatrix &matrix, Value isAligned, Value firstRow, Value endRow,
                Value firstColumn, Value endColumn) const;
  /// Commits outstanding cp.async copies of this thread as a group.
  static void commit(Emitter &e);
  /// Waits for all committed groups of this thread, except for the last `pending` ones.
  static void wait(Emitter &e, int pending = 0);

  //===--- Fragments of 16 × 16 elements, as four registers (i32) ---===//
  /// The base address of a lane (i32, opaque to LLVM) for the function of the same name, starting at row `row` and
  /// column `column` (i32, uniform in the warp). Compute it once per loop; fragments are at constant offsets.
  Value lhsAddress(Emitter &e, Value row) const;
  Value lhsTransposedAddress(Emitter &e, Value row, Value column) const;
  Value rhsAddress(Emitter &e, Value row) const;
  Value rhsTransposedAddress(Emitter &e, Value row, Value column = {}) const;
  /// Loads a 16 × 16 LHS fragment at offset (row, k).
  llvm::SmallVector<Value> loadLhs(Emitter &e, Value address, int64_t row, int64_t k) const;
  /// Like `loadLhs`, from a tile that stores k as rows.
  llvm::SmallVector<Value> loadLhsTransposed(Emitter &e, Value address, int64_t k, int64_t row) const;
  /// Loads two 16 × 8 RHS fragments at offset (k, n) from a tile that stores n as rows: {k0, k8} of the first eight n,
  /// then of the next eight.
  llvm::SmallVector<Value> loadRhs(Emitter &e, Value address, int64_t n, int64_t k) const;
  /// Like `loadRhs`, from a tile that stores k as rows.
  llvm::SmallVector<Value> loadRhsTransposed(Emitter &e, Value address, int64_t k, int64_t n) const;

private:
  llvm::SmallVector<Value> loadMatrices(Emitter &e, Value address, int64_t row, int64_t column,
                                        bool isTransposed) const;
  /// The ldmatrix address of a lane: row (lane mod 8) + 8 · bit `rowBit` of the lane, column 8 · bit `columnBit`.
  Value laneAddress(Emitter &e, Value row, unsigned rowBit, unsigned columnBit, Value column = {}) const;
  /// The address of an element, i32, opaque to LLVM.
  Value opaqueAddress(Emitter &e, Value row, Value column) const;
  Value toPointer(Emitter &e, Value address, int64_t elements) const;
  /// The threads that copy a row, a power of two, and the rows that all threads copy at a time.
  int64_t threadsPerRow() const;
  int64_t rowsAtOnce() const;
  /// The threads that copy a row of a whole tile: as many as a line of global memory has vectors. Each copies the
  /// vectors of its place in all lines of the row, which are at constant offsets from one address.
  int64_t threadsPerWholeRow() const;
  /// Row and column of the first vector that this thread copies of a whole tile (index), at this place.
  std::pair<Value, Value> threadPosition(Emitter &e) const;
  void copyWhole(Emitter &e, const Copies &copies, Value first) const;
  void copyAsync(Emitter &e, const GlobalMatrix &matrix, Value first) const;
  void copyElements(Emitter &e, const GlobalMatrix &matrix, Value first) const;
  void copyComputed(Emitter &e, const GlobalMatrix &matrix, Value first) const;
  /// Copies `count` (i32) elements of a vector, `stride` (index) apart at `source`, to `target`; the others are 0.
  void copyScalars(Emitter &e, Value source, Value stride, Value target, Value count) const;

  Value base; ///< !llvm.ptr<3>
  mlir::Type element;
  int64_t rows, columns, padded, pitch;
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_SHAREDTILE_H
