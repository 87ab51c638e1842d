//===- PagedTile.h - Tiles of keys in pages -----------------------*- C++ -*-===//
//
// A tile of keys or values whose rows are in pages is copied by several boxes, each with rows of one page.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_PAGEDTILE_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_PAGEDTILE_H

#include "TensorMap.h"

namespace saccade::device {

/// The boxes of a tile. Lane i of a warp has the place of box i in the pool. A box has as many rows as
/// `runtime::BulkTensor::commonRows` gives, so neither a page nor a tile ends within it. The entry of the page table is
/// read only for boxes with rows of the operand. The others have a page outside of the pool, of which a bulk copy reads
/// nothing and writes zeros.
class PagedTile {
public:
  using Value = mlir::Value;
  /// The tile of `tileRows` rows from row `first` (i32) of `operand` on, which has `rows` (i32) rows. The position of
  /// the tile in the sequence is a multiple of the rows of a box. All lanes execute it.
  PagedTile(Emitter &e, const MappedOperand &operand, int64_t tileRows, Value rows, Value first);

  /// Emits `body` for each box, with its first row in the tile, its page and its first row in the page, i32. All lanes
  /// execute it.
  void forEach(Emitter &e, llvm::function_ref<void(Value tileRow, Value page, Value rowInPage)> body) const;

private:
  int64_t tileRows;
  Value boxRows;         ///< i32
  Value page, rowInPage; ///< of the box of this lane, i32
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_PAGEDTILE_H
