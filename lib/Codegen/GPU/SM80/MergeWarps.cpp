//===- MergeWarps.cpp - Merging the states of warps ---------------------------===//
//
// The warps exchange maxima and sums through shared memory first, so that each rescales its accumulator to the common
// maximum before storing it.
//
//===----------------------------------------------------------------------===//
#include "MergeWarps.h"
#include "../SharedMemory.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

namespace {

class WarpMerger {
public:
  WarpMerger(const Emitter &e, AccumulateOp op, const PrivateState &state, const AttentionShape &shape)
      : e(e), op(op), state(state), shape(shape), lane(this->e, shape),
        columns(SharedTile::paddedColumns(shape.valueDepth)), pitch(columns + 8) {}

  void run() {
    // Reuses the memory of the tiles. The barrier after the maxima also follows the last read of the tiles.
    Value shared = getDynamicShared(e, warps * shape.rows * pitch * 4);
    parts = e.advance(shared, e.type, 0);
    maxima = allocateShared(e, e.type, warps * shape.rows);
    sums = allocateShared(e, e.type, warps * shape.rows);
    factors = allocateShared(e, e.type, 2 * shape.rows);
    GlobalMatrix query(e, op.getQuery(), op.getQueryDims());
    storeRowsToShared();
    e.barrier();
    storeAccumulatorsToShared();
    updateRows(query.rows);
    e.barrier();
    updateAccumulators(query.rows);
    e.barrier();
  }

private:
  Value loadShared(Value shared, Value place) {
    return LLVM::LoadOp::create(e.b, e.loc, e.type, e.advance(shared, e.type, place));
  }
  void storeShared(Value x, Value shared, Value place) {
    LLVM::StoreOp::create(e.b, e.loc, x, e.advance(shared, e.type, place));
  }

  void storeRowsToShared() {
    SmallVector<Value> own;
    for (int64_t r = 0; r < shape.rowsPerThread(); ++r) {
      Value sum = reduceLanes(e, e.load(state.sum, r), [&](Value x, Value y) { return e.addf(x, y); });
      own.push_back(fromRounded(e, op.getNaturalMax(), e.load(state.max, r), sum));
    }
    e.ifElse(lane.isFirst(e), [&] {
      for (auto [r, sum] : llvm::enumerate(own)) {
        Value place = e.add(e.mul(lane.warp, shape.rows), e.add(lane.group, Lane::offset(r)));
        storeShared(e.load(state.max, r), maxima, place);
        storeShared(sum, sums, place);
      }
    });
  }

  /// The row maximum over all warps; `row` is i32.
  Value maxOf(Value row) {
    Value max = loadShared(maxima, row);
    for (int64_t warp = 1; warp < warps; ++warp)
      max = e.maxf(max, loadShared(maxima, e.add(row, warp * shape.rows)));
    return max;
  }

  void storeAccumulatorsToShared() {
    for (int64_t r = 0; r < shape.rowsPerThread(); ++r) {
      Value row = e.add(lane.group, Lane::offset(r));
      Value factor = emitFactor(e, e.load(state.max, r), e.zeroIfMinusInfinity(maxOf(row)), op.getNaturalMax());
      factor = fromRounded(e, op.getNaturalMax(), e.load(state.max, r), factor);
      Value first = e.add(e.mul(e.add(e.mul(lane.warp, shape.rows), row), pitch), lane.column);
      for (int64_t tile = 0; tile < shape.valueTiles(); ++tile)
        for (int64_t i : {0, 1}) {
          Value x = e.load(state.acc, (r / 2 * shape.valueTiles() + tile) * 4 + r % 2 * 2 + i);
          storeShared(e.mulf(x, factor), parts, e.add(first, 8 * tile + i));
        }
    }
  }

  /// Merges the state of a row (i32) in memory with the states of the warps.
  MergedRow mergedRow(Value row) {
    Value max = maxOf(row), base = e.zeroIfMinusInfinity(max), sum;
    for (int64_t warp = 0; warp < warps; ++warp) {
      Value place = e.add(row, warp * shape.rows);
      Value part = e.mulf(loadShared(sums, place), emitFactor(e, loadShared(maxima, place), base, op.getNaturalMax()));
      sum = sum ? e.addf(sum, part) : part;
    }
    Value at = e.toIndex(row);
    return mergeRow(e, e.load(op.getMax(), {at}), e.load(op.getSum(), {at}), max, sum, op.getNaturalMax());
  }

  void updateRows(Value rows) {
    e.ifElse(e.isLess(e.thread(), e.toI32(rows)), [&] {
      MergedRow merged = mergedRow(e.thread());
      Value at = e.toIndex(e.thread());
      e.storeShared(merged.max, op.getMax(), {at});
      e.storeShared(merged.sum, op.getSum(), {at});
      storeShared(merged.stateFactor, factors, e.thread());
      storeShared(merged.otherFactor, factors, e.add(e.thread(), shape.rows));
    });
  }

  void updateAccumulators(Value rows) {
    e.loop(e.thread(), e.mul(e.toI32(rows), columns), threadsPerCTA, [&](Value i) {
      Value row = e.div(i, columns), place = e.add(e.mul(row, pitch), e.rem(i, columns)), sum;
      for (int64_t warp = 0; warp < warps; ++warp) {
        Value part = loadShared(parts, e.add(place, warp * shape.rows * pitch));
        sum = sum ? e.addf(sum, part) : part;
      }
      SmallVector<Value> at = {e.toIndex(row), e.toIndex(e.rem(i, columns))};
      Value before = e.mulf(e.load(op.getAcc(), at), loadShared(factors, row));
      e.storeShared(e.fma(sum, loadShared(factors, e.add(row, shape.rows)), before), op.getAcc(), at);
    });
  }

  Emitter e;
  AccumulateOp op;
  const PrivateState &state;
  AttentionShape shape;
  Lane lane;
  int64_t columns, pitch;    ///< of the accumulator, and of its rows in shared memory, which avoids bank conflicts
  Value parts, maxima, sums; ///< of all warps, in shared memory
  Value factors;             ///< of the state in memory, then of the warps' states, in shared memory
};

} // namespace

void device::mergeWarps(const Emitter &e, AccumulateOp op, const PrivateState &state, const AttentionShape &shape) {
  WarpMerger(e, op, state, shape).run();
}
