//===- AttentionShape.h - Who holds what of an attention ----------*- C++ -*-===//
//
// The sizes of a kernel on the tensor cores, and the place of a thread in its fragments.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_ATTENTIONSHAPE_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_ATTENTIONSHAPE_H

#include "../AttentionState.h"
#include "SharedTile.h"
#include "saccade/Support/Kernels.h"

namespace saccade::device {

inline constexpr int64_t warps = threadsPerCTA / 32;

/// The sizes of a kernel.
struct AttentionShape {
  explicit AttentionShape(const AttentionState &state)
      : element(state.element()), rows(state.rows()), depth(state.depth()), valueDepth(state.valueDepth()) {
    for (attn::AccumulateOp step : state.steps)
      hasTallies |= !step.getTallyRegions().empty();
  }

  /// Of a step with few rows, which all warps have, each for its part of the keys.
  explicit AttentionShape(attn::AccumulateOp step)
      : element(mlir::getElementTypeOrSelf(step.getQuery())), rows(16), splitsKV(true),
        depth(attn::getStaticDimSize(step.getKey(), step.getKeyDims(), attn::Dim::Depth)),
        valueDepth(attn::getStaticDimSize(step.getValue(), step.getValueDims(), attn::Dim::Depth)) {}

  mlir::Type element;
  int64_t rows;
  bool splitsKV = false;
  int64_t depth, valueDepth;
  bool hasTallies = false;

  int64_t mTiles() const { return splitsKV ? 1 : rows / (16 * warps); } ///< of 16 rows that a warp has
  /// Of a step: 64 where a thread has registers for their scores beside the accumulator. What tallies do to a score is
  /// long code, once for each.
  int64_t keys() const { return accElements() + 32 * mTiles() <= 160 && !hasTallies ? 64 : 32; }
  int64_t keysPerWarp() const { return splitsKV ? keys() / warps : keys(); }
  int64_t keyTiles() const { return keysPerWarp() / 8; }
  int64_t valueTiles() const { return SharedTile::paddedColumns(valueDepth) / 8; }
  int64_t accElements() const { return mTiles() * valueTiles() * 4; }
  int64_t rowsPerThread() const { return 2 * mTiles(); }
  /// Whether the queries' fragments stay in registers beside everything else.
  bool keepsQueries() const { return mTiles() * SharedTile::paddedColumns(depth) <= 128; }

  /// A thread has 255 registers; half of them may be the accumulator.
  bool fits() const {
    return (element.isF16() || element.isBF16()) && depth > 0 && valueDepth > 0 && depth <= 256 &&
           (splitsKV || rows % (16 * warps) == 0) && rows > 0 && accElements() <= 128;
  }
};

/// The place of a thread in the fragments of a result.
struct Lane {
  Lane(Emitter &e, const AttentionShape &shape) {
    mlir::Value thread = e.thread(), lane = e.rem(thread, 32);
    warp = e.div(thread, 32);
    firstRow = shape.splitsKV ? e.i32(0) : e.mul(warp, 16 * shape.mTiles());
    firstKey = shape.splitsKV ? e.mul(warp, shape.keysPerWarp()) : e.i32(0);
    group = e.div(lane, 4);
    column = e.mul(e.rem(lane, 4), 2);
  }
  /// Row r of those that the thread holds a part of, behind its first one.
  static int64_t offset(int64_t r) { return r / 2 * 16 + r % 2 * 8; }
  mlir::Value row(Emitter &e, int64_t r) const { return e.toIndex(e.add(e.add(firstRow, group), offset(r))); }
  /// Whether it is the first of those that share a row.
  mlir::Value isFirst(Emitter &e) const { return e.compare(mlir::arith::CmpIPredicate::eq, column, e.i32(0)); }

  mlir::Value warp;
  mlir::Value firstRow, firstKey; ///< of the warp, in the tiles
  mlir::Value group;    ///< of lanes that share rows
  mlir::Value column;   ///< the first of two
};

/// Joins what the four lanes of a row have.
inline mlir::Value reduceLanes(Emitter &e, mlir::Value x,
                             llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> combine) {
  for (int64_t mask : {1, 2})
    x = combine(x, e.shuffleXor(x, mask));
  return x;
}

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_ATTENTIONSHAPE_H
