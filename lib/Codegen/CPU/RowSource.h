//===- RowSource.h - The rows of a tile of keys or values ---------*- C++ -*-===//
//
// A kernel that does not pack its operands reads the rows of a tile where they are: at multiples of a stride, or in the
// pages of a pool.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_ROWSOURCE_H
#define SACCADE_LIB_CODEGEN_CPU_ROWSOURCE_H

#include "Emitter.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::cpu {

/// The rows of a tile, positions × depth. The elements of a row are contiguous.
struct RowSource {
  mlir::Value matrix; ///< memref<? × depth>
  mlir::Value places; ///< memref<?>: the row of `matrix` that has a position; null if position i is row i

  /// The row of `matrix` that has `position`, a position of the tile.
  mlir::Value row(Emitter &e, mlir::Value position) const { return places ? e.load(places, position) : position; }
};

/// The rows of a strided tile, positions × depth: in place or, if the elements of a row are not contiguous, which is
/// tested at run time, in a copy. `capacity`: the largest number of positions.
RowSource emitRows(Emitter &e, mlir::Value tile, int64_t capacity);

/// Emits `body(position of the tile, page, position of the page)` for all positions of the tile, in ascending order.
void emitForPagePositions(Emitter &e, attn::LoadPagesOp op,
                          llvm::function_ref<void(mlir::Value, mlir::Value, mlir::Value)> body);

/// Emits the copy that `op` describes.
void emitLoadPages(Emitter &e, attn::LoadPagesOp op);

/// The rows that `op` loads, in their pages, or in the tile under the same condition.
RowSource emitRowsInPages(Emitter &e, attn::LoadPagesOp op, int64_t capacity);

/// The op that loads `tile` for `user`; null if there is none, if the memory of the tile has other users, or if other
/// memory may change between the ops.
attn::LoadPagesOp findLoadOf(mlir::Value tile, mlir::Operation *user);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_ROWSOURCE_H
