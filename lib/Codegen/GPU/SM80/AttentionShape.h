//===- AttentionShape.h - Tile sizes and fragment layout ----------*- C++ -*-===//
//
// The tile sizes of a tensor-core attention kernel, and the position of a thread in its fragments.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_ATTENTIONSHAPE_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_ATTENTIONSHAPE_H

#include "../AttentionState.h"
#include "SharedTile.h"
#include "saccade/Support/Kernels.h"

namespace saccade::device {

/// The tile sizes of a kernel.
struct AttentionShape {
  /// The largest head size.
  static constexpr int64_t maxHeadSize = 256;

  explicit AttentionShape(const AttentionState &state)
      : element(state.element()), rows(state.rows()), depth(state.depth()), valueDepth(state.valueDepth()) {
    hasLse = static_cast<bool>(attn::FinalizeOp(state.finalize).getLse());
    for (attn::AccumulateOp step : state.steps)
      hasTallies |= !step.getTallyRegions().empty();
  }

  /// The shape of a split-KV step: all warps compute the same 16 rows, each for a part of the keys.
  explicit AttentionShape(attn::AccumulateOp step)
      : element(mlir::getElementTypeOrSelf(step.getQuery())), rows(16), warpsShareRows(true),
        depth(attn::getStaticDimSize(step.getKey(), step.getKeyDims(), attn::Dim::Depth)),
        valueDepth(attn::getStaticDimSize(step.getValue(), step.getValueDims(), attn::Dim::Depth)) {}

  mlir::Type element;
  int64_t rows;
  bool warpsShareRows = false; ///< whether all warps compute the same rows, each for a part of the keys
  int64_t depth, valueDepth;
  bool hasTallies = false;
  bool hasLse = true;               ///< or may have, of a split-KV step
  int64_t warps = device::warps;    ///< that compute
  int64_t firstWarp = 0;            ///< of them
  std::optional<int64_t> givenKeys; ///< per step, by a script
  /// Whether launches take another kernel, unless its tensor maps cannot be made: all tiles then share one path, which
  /// LLVM and ptxas compile in less than half the time.
  bool hasBulkKernel = false;

  int64_t mTiles() const { return warpsShareRows ? 1 : rows / (16 * warps); } ///< 16-row tiles per warp
  /// Keys per step: 64 if registers suffice for their scores and the accumulator. With tallies 32, to limit the size of
  /// the code, which is emitted per score.
  int64_t keys() const {
    return givenKeys.value_or(accElements() + 32 * mTiles() <= 192 && !hasTallies && !hasBulkKernel ? 64 : 32);
  }
  int64_t keysPerWarp() const { return warpsShareRows ? keys() / warps : keys(); }
  int64_t keyTiles() const { return keysPerWarp() / 8; }
  int64_t valueTiles() const { return SharedTile::paddedColumns(valueDepth) / 8; }
  int64_t accElements() const { return mTiles() * valueTiles() * 4; }
  int64_t rowsPerThread() const { return 2 * mTiles(); }
  /// Whether the query fragments are kept in registers.
  bool keepsQueries() const { return mTiles() * SharedTile::paddedColumns(depth) <= 128; }

  /// Whether tanh may have a relative error of 2^-11: weights are rounded to 8 bits, and no result has the precision of
  /// f32.
  bool permitsApproximateTanh() const { return element.isBF16() && !hasLse; }

  /// Whether the kernel supports this shape. The accumulator may take half of a thread's 255 registers.
  bool fits() const {
    return (element.isF16() || element.isBF16()) && depth > 0 && valueDepth > 0 && depth <= maxHeadSize &&
           (warpsShareRows || rows % (16 * warps) == 0) && rows > 0 && accElements() <= 128;
  }
};

/// The position of a thread in an accumulator fragment.
struct Lane {
  static constexpr int64_t perRow = 4; ///< lanes that share a row

  Lane(Emitter &e, const AttentionShape &shape) : Lane(e, shape, e.thread()) {}
  Lane(Emitter &e, const AttentionShape &shape, mlir::Value thread) {
    mlir::Value lane = e.rem(thread, 32);
    warp = e.div(thread, 32);
    if (shape.firstWarp)
      warp = e.add(warp, -shape.firstWarp);
    firstRow = shape.warpsShareRows ? e.i32(0) : e.mul(warp, 16 * shape.mTiles());
    firstKey = shape.warpsShareRows ? e.mul(warp, shape.keysPerWarp()) : e.i32(0);
    group = e.div(lane, 4);
    column = e.mul(e.rem(lane, 4), 2);
  }
  /// The offset of the thread's r-th row from its first row.
  static int64_t offset(int64_t r) { return r / 2 * 16 + r % 2 * 8; }
  mlir::Value row(Emitter &e, int64_t r) const { return e.toIndex(e.add(e.add(firstRow, group), offset(r))); }
  /// Whether the thread is the first of the four lanes that share a row.
  mlir::Value isFirst(Emitter &e) const { return e.compare(mlir::arith::CmpIPredicate::eq, column, e.i32(0)); }

  mlir::Value warp;               ///< among those that compute
  mlir::Value firstRow, firstKey; ///< of the warp, in the query and key tile
  mlir::Value group;              ///< index of the four lanes that share rows
  mlir::Value column;             ///< first of two adjacent columns
};

/// Reduces x over the lanes that share a row.
inline mlir::Value reduceLanes(Emitter &e, mlir::Value x,
                               llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> combine) {
  return e.reduceLanes(x, Lane::perRow, combine);
}

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_ATTENTIONSHAPE_H
