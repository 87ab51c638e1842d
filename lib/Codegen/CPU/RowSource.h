//===- RowSource.h - The rows of a tile of keys or values ---------*- C++ -*-===//
//
// A kernel that does not pack its operands reads the elements of a tile where they are: in rows at multiples of a
// stride, or in the pages of a pool. Elements that an elementwise op computes, such as a dequantization, are computed
// when they are loaded.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_ROWSOURCE_H
#define SACCADE_LIB_CODEGEN_CPU_ROWSOURCE_H

#include "Emitter.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::cpu {

/// The elements of a tile, positions × depth.
class RowSource {
public:
  struct Row {
    mlir::Value position;
    /// Of each input the place in memory, or the value if it is the same for all elements of the row.
    llvm::SmallVector<mlir::Value, 4> inputs;
    llvm::SmallVector<mlir::Value, 4> reads; ///< of each matrix the place in memory
    mlir::Value factor;                      ///< elements are those that are loaded times this scalar; null for 1
  };

  /// The row of `position`, a position of the tile.
  Row row(Emitter &e, mlir::Value position) const;
  /// Loads `count` elements of a row from `column` on, a multiple of the lanes, without the factor of the row. Elements
  /// from index `present` on are 0; all are 0 if `condition` (may be null) is false. Computed elements are not rounded
  /// to the type of the tile.
  mlir::Value load(Emitter &e, const Row &row, mlir::Value column, int64_t count, int64_t present,
                   mlir::Value condition = nullptr) const;
  /// Prefetches the cache lines that hold the element (position, column), of a tile of `positions` positions. The
  /// position may be beyond the tile.
  void prefetch(Emitter &e, mlir::Value position, mlir::Value column, mlir::Value positions) const;

  /// Prefetches what a row of a few bytes in a page is read from, such as the scale of a position. Where rows follow
  /// each other, the processor prefetches it.
  void prefetchShortRows(Emitter &e, mlir::Value position, mlir::Value positions) const;

  /// Registers of elements of a row that are best loaded at once: floats of 8 bits are widened in two steps, of which
  /// the first takes half of the registers.
  int64_t registersPerLoad() const;
  /// The elements of a row that share a cache line.
  int64_t elementsPerLine() const;
  bool isComputed() const { return computation != nullptr; }
  /// Whether rows have a factor. It then multiplies a score or a weight instead of each element.
  bool hasFactor() const { return rowFactor != nullptr; }

  /// Erases the ops that write the tile, after the last load. The tile must have no other readers.
  void eraseWriters();
  /// Whether elements are read from pages.
  bool isInPages() const {
    return llvm::any_of(inputs, [](const Input &input) { return input.places && input.isElement(); }) ||
           llvm::any_of(reads, [](const Read &read) { return read.rows.places != nullptr; });
  }
  /// Whether all positions whose rows are loaded must be in the tile.
  bool isBounded() const { return computation || inputs[0].places; }

private:
  /// A memref or a scalar that elements are computed from.
  struct Input {
    mlir::Value buffer;
    mlir::Value places;  ///< memref<?>: the first index of a position in `buffer`; null if it is the position
    mlir::AffineMap map; ///< from position and column to the indices of `buffer`

    bool isUniform() const { return !map.isFunctionOfDim(1); }
    bool isElement() const { return map.isFunctionOfDim(0) && map.isFunctionOfDim(1); }
    llvm::SmallVector<mlir::Value> indices(Emitter &e, mlir::Value place, mlir::Value column) const;
  };

  /// A matrix of which the computation reads the elements position / 2^bits of a row, such as words of codes.
  struct Read {
    mlir::Value matrix;
    Input rows;
    int64_t bits;
  };

  llvm::SmallVector<Input, 4> inputs;
  llvm::SmallVector<Read, 4> reads;
  /// Computes an element from those of the inputs; null if it is that of the only input.
  mlir::linalg::GenericOp computation;
  /// Values of the computation: what is loaded, and the factor of the row (may be null).
  mlir::Value element, rowFactor;
  float unit = 1; ///< the factor of the row is multiplied by this, because elements of 8 bits are widened without it
  llvm::SmallVector<mlir::Operation *, 4> writers; ///< of the tile and of inputs, readers first

  static Input emitStrided(Emitter &e, mlir::Value tile, int64_t capacity);
  static Input emitInPages(Emitter &e, attn::LoadPagesOp op, int64_t capacity);
  void splitFactor(mlir::Type type);
  void emitInput(Emitter &e, mlir::OpOperand &operand, int64_t capacity);
  void emitReads(Emitter &e, int64_t capacity);

  friend RowSource emitRows(Emitter &e, mlir::Value tile, mlir::Operation *writer, int64_t capacity);
};

/// The rows of `tile`, positions × depth, which `writer` (may be null, see findWriterOf) writes: in pages, computed, or
/// in place. If the elements of a row are not contiguous in memory, which is tested at run time, they are copied.
/// `capacity`: the largest number of positions.
RowSource emitRows(Emitter &e, mlir::Value tile, mlir::Operation *writer, int64_t capacity);

/// The op that writes `tile` for `user`: attn.load_pages, or an elementwise linalg.generic from whose inputs elements
/// can be computed when they are loaded. Null if there is none, if the memory of the tile has other users, or if memory
/// that the op reads may change before `user`.
mlir::Operation *findWriterOf(mlir::Value tile, mlir::Operation *user);

/// Emits the copy that `op` describes.
void emitLoadPages(Emitter &e, attn::LoadPagesOp op);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_ROWSOURCE_H
