//===- MergeLoop.cpp - Merging the states of all chunks -----------------------===//
//
// Each warp merges a quarter of the iterations, with the merged state in registers. The parts of the warps are merged
// last, in their order. A merge per iteration would wait for memory in each of them.
//
//===----------------------------------------------------------------------===//
#include "MergeLoop.h"
#include "../SharedMemory.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

/// The rows of a state that a thread merges at once, and the number of chunks whose states it loads before it merges
/// them. Both overlap the latencies of loads and of the exponentials.
static constexpr int64_t rowsAtOnce = 4, chunksAtOnce = 2;
/// Shared memory that the warps of a CTA exchange for a matrix, in bytes.
static constexpr int64_t maxExchanged = 32 * 1024;

namespace {

class LoopMerger {
public:
  LoopMerger(const Emitter &e, scf::ForOp loop, MergeOp op) : e(e), loop(loop), op(op), state(op.getState()) {}

  /// Whether the body of `loop` only selects the states that `op` merges, and warps can exchange the rows of a state.
  static bool fits(scf::ForOp loop, MergeOp op) {
    if (!loop.getInitArgs().empty() || !isConstantIntValue(loop.getStep(), 1))
      return false;
    for (Operation &inner : loop.getBody()->without_terminator())
      if (&inner != op && !isMemoryEffectFree(&inner))
        return false;
    auto isOutside = [&](Value value) { return !value || loop.isDefinedOutsideOfLoop(value); };
    State state = op.getState();
    SmallVector<Value> matrices = llvm::to_vector(state.tallies);
    matrices.push_back(state.acc);
    auto isNarrow = [&](Value matrix) {
      auto type = cast<MemRefType>(matrix.getType());
      return isOutside(matrix) &&
             warps * rowsAtOnce * type.getDimSize(1) * type.getElementTypeBitWidth() / 8 <= maxExchanged;
    };
    return llvm::all_of(matrices, isNarrow) &&
           llvm::all_of(ArrayRef<Value>{state.max, state.sum, state.rowMax, state.argmax}, isOutside);
  }

  void run() {
    for (Value buffer : rowBuffers(state))
      rowParts.push_back(allocateShared(e, getElementTypeOrSelf(buffer), warps * rowsAtOnce));
    e.barrier();
    for (auto [i, tally] : llvm::enumerate(state.tallies))
      mergeMatrix(tally, [i](const State &part) { return part.tallies[i]; }, /*storesRows=*/false);
    mergeMatrix(state.acc, [](const State &part) { return part.acc; }, /*storesRows=*/true);
  }

private:
  /// Maximum, sum and, if the state has them, row maximum and its key.
  static SmallVector<Value> rowBuffers(const State &part) {
    SmallVector<Value> buffers = {part.max, part.sum};
    for (Value other : {part.rowMax, part.argmax})
      if (other)
        buffers.push_back(other);
    return buffers;
  }
  SmallVector<Value> loadRow(const State &part, Value row) {
    return llvm::map_to_vector(rowBuffers(part), [&](Value buffer) { return e.load(buffer, {row}); });
  }
  /// The values of `loadRow` of no keys. The position of their maximum is not used.
  SmallVector<Value> emptyRow() {
    SmallVector<Value> values;
    for (auto [i, buffer] : llvm::enumerate(rowBuffers(state)))
      values.push_back(
          i == 0 || (i == 2 && buffer == state.rowMax)
              ? e.minusInfinity()
              : arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(getElementTypeOrSelf(buffer))).getResult());
    return values;
  }

  /// Merges `into`, the accumulator or a tally, with the same matrix of each state, which `select` returns.
  void mergeMatrix(Value into, function_ref<Value(const State &)> select, bool storesRows) {
    int64_t columns = cast<MemRefType>(into.getType()).getDimSize(1);
    parts = allocateShared(e, e.type, warps * rowsAtOnce * columns);
    Value rows = e.size(state.acc, 0), warp = e.div(e.thread(), 32);
    e.loop(e.index(0), rows, rowsAtOnce, [&](Value first) {
      storeParts(columns, warp, mergeChunks(columns, select, first, rows, e.toIndex(warp)));
      e.barrier();
      e.loop(e.thread(), e.i32(rowsAtOnce * columns), threadsPerCTA, [&](Value i) {
        Value ofPart = e.div(i, columns), row = e.add(first, e.toIndex(ofPart)), column = e.toIndex(e.rem(i, columns));
        e.ifElse(e.isLess(row, rows), [&] {
          SmallVector<Value> values = loadRow(state, row);
          values.push_back(e.load(into, {row, column}));
          mergeParts(values, ofPart, [&](int64_t warp) {
            return SmallVector<Value>{loadShared(e.type, parts, e.add(i, warp * rowsAtOnce * columns))};
          });
          e.storeShared(values.back(), into, {row, column});
        });
      });
      e.barrier();
      if (!storesRows)
        return;
      Value row = e.add(first, e.toIndex(e.thread()));
      e.ifElse(e.andi(e.isLess(e.thread(), e.i32(rowsAtOnce)), e.isLess(row, rows)), [&] {
        SmallVector<Value> values = loadRow(state, row);
        mergeParts(values, e.thread(), [](int64_t) { return SmallVector<Value>(); });
        for (auto [value, buffer] : llvm::zip_equal(values, rowBuffers(state)))
          e.storeShared(value, buffer, {row});
      });
      e.barrier();
    });
  }

  /// The row of `rowsAtOnce` with index `r`, or the last one of the state.
  Value rowAt(Value first, int64_t r, Value rows) { return e.min(e.add(first, r), e.sub(rows, e.index(1))); }
  /// The columns of a lane, which are beyond the row if it is not a multiple of 32.
  SmallVector<Value> columnsOfLane(int64_t columns) {
    SmallVector<Value> places;
    for (int64_t i = 0; i < columns; i += 32)
      places.push_back(e.add(e.rem(e.thread(), 32), i));
    return places;
  }

  /// The states of the iterations of a warp, merged: for each row the values of `loadRow` and the columns of the lane.
  SmallVector<Value> mergeChunks(int64_t columns, function_ref<Value(const State &)> select, Value first, Value rows,
                                 Value warp) {
    Value begin = loop.getLowerBound(), end = loop.getUpperBound();
    Value count = e.ceilDiv(e.max(e.sub(end, begin), e.index(0)), e.index(warps));
    begin = e.add(begin, e.mul(warp, count)), end = e.min(e.add(begin, count), end);
    SmallVector<Value> places = columnsOfLane(columns), carried;
    for (int64_t r = 0; r < rowsAtOnce; ++r) {
      llvm::append_range(carried, emptyRow());
      carried.append(places.size(), e.scalar(0.0));
    }
    size_t values = carried.size() / rowsAtOnce;
    return e.loop(begin, end, chunksAtOnce, carried, [&](Value chunk, ValueRange before) {
      SmallVector<SmallVector<Value>> chunks;
      for (int64_t i = 0; i < chunksAtOnce; ++i)
        chunks.push_back(loadChunk(e.add(chunk, i), end, columns, places, select, first, rows));
      SmallVector<Value> merged(before);
      for (ArrayRef<Value> loaded : chunks)
        for (int64_t r = 0; r < rowsAtOnce; ++r)
          mergeValues(MutableArrayRef(merged).slice(r * values, values), loaded.slice(r * values, values));
      return merged;
    });
  }

  /// The state of iteration `chunk` in the order of `mergeChunks`; the empty state from `end` on.
  SmallVector<Value> loadChunk(Value chunk, Value end, int64_t columns, ArrayRef<Value> places,
                               function_ref<Value(const State &)> select, Value first, Value rows) {
    IRMapping mapping;
    mapping.map(loop.getInductionVar(), e.min(chunk, e.sub(end, e.index(1))));
    Operation *clone = nullptr;
    for (Operation &inner : loop.getBody()->without_terminator()) {
      Operation *next = e.b.clone(inner, mapping);
      if (&inner == op)
        clone = next;
    }
    State part = cast<MergeOp>(clone).getOtherState();
    Value isChunk = e.isLess(chunk, end);
    SmallVector<Value> loaded;
    for (int64_t r = 0; r < rowsAtOnce; ++r) {
      Value row = rowAt(first, r, rows);
      for (auto [value, empty] : llvm::zip_equal(loadRow(part, row), emptyRow()))
        loaded.push_back(e.select(isChunk, value, empty));
      for (Value place : places) {
        Value column = e.min(e.toIndex(place), e.index(columns - 1));
        loaded.push_back(e.select(isChunk, e.load(select(part), {row, column}), e.scalar(0.0)));
      }
    }
    clone->erase();
    return loaded;
  }

  /// Merges the values of a row with those of another state: the values of `loadRow`, then elements of a matrix.
  void mergeValues(MutableArrayRef<Value> values, ArrayRef<Value> part) {
    MergedRow merged = mergeRow(e, values[0], values[1], part[0], part[1]);
    values[0] = merged.max, values[1] = merged.sum;
    size_t rowValues = rowParts.size();
    if (rowValues > 2) {
      Value isLarger = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OGT, part[2], values[2]);
      for (size_t i = 2; i < rowValues; ++i)
        values[i] = e.select(isLarger, part[i], values[i]);
    }
    for (size_t i = rowValues; i < values.size(); ++i)
      values[i] = e.addf(e.mulf(values[i], merged.stateFactor), e.mulf(part[i], merged.otherFactor));
  }

  //===--- Shared memory: by warp, then by row ---===//
  void storeParts(int64_t columns, Value warp, ArrayRef<Value> merged) {
    size_t values = merged.size() / rowsAtOnce;
    Value isFirstLane = e.compare(arith::CmpIPredicate::eq, e.rem(e.thread(), 32), e.i32(0));
    for (int64_t r = 0; r < rowsAtOnce; ++r) {
      ArrayRef<Value> row = merged.slice(r * values, values);
      Value at = e.add(e.mul(warp, rowsAtOnce), r);
      e.ifElse(isFirstLane, [&] {
        for (auto [part, value] : llvm::zip(rowParts, row))
          LLVM::StoreOp::create(e.b, e.loc, value, e.advance(part, value.getType(), at));
      });
      for (auto [place, value] : llvm::zip_equal(columnsOfLane(columns), row.drop_front(rowParts.size())))
        e.ifElse(e.isLess(place, e.i32(columns)), [&, place = place, value = value] {
          LLVM::StoreOp::create(e.b, e.loc, value, e.advance(parts, e.type, e.add(e.mul(at, columns), place)));
        });
    }
  }

  Value loadShared(Type element, Value shared, Value place) {
    return LLVM::LoadOp::create(e.b, e.loc, element, e.advance(shared, element, place));
  }

  /// Merges the values of a row with row `row` (i32) of the parts of all warps, whose other values `load` returns.
  void mergeParts(SmallVector<Value> &values, Value row, function_ref<SmallVector<Value>(int64_t)> load) {
    for (int64_t warp = 0; warp < warps; ++warp) {
      SmallVector<Value> part;
      for (auto [shared, buffer] : llvm::zip_equal(rowParts, rowBuffers(state)))
        part.push_back(loadShared(getElementTypeOrSelf(buffer), shared, e.add(row, warp * rowsAtOnce)));
      llvm::append_range(part, load(warp));
      mergeValues(values, part);
    }
  }

  Emitter e;
  scf::ForOp loop;
  MergeOp op;
  State state;
  SmallVector<Value> rowParts; ///< the values of `loadRow` of all warps
  Value parts;                 ///< the matrix of all warps
};

} // namespace

bool device::lowerMergeLoop(MergeOp op) {
  auto loop = dyn_cast<scf::ForOp>(op->getParentOp());
  if (!loop || !LoopMerger::fits(loop, op))
    return false;
  OpBuilder b(loop);
  LoopMerger({b, op.getLoc(), cast<FloatType>(getElementTypeOrSelf(op.getState().acc))}, loop, op).run();
  loop.erase();
  return true;
}
