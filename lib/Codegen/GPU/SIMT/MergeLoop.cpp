//===- MergeLoop.cpp - Merging the states of all chunks -----------------------===//
//
// A warp merges a row. Its lanes first read the maxima and sums of 32 chunks and compute the factor of each, then add
// the accumulators with these factors, whose loads do not depend on one another. A merge per chunk would wait for
// memory in each of them.
//
//===----------------------------------------------------------------------===//
#include "MergeLoop.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

/// Lanes of a warp, which have a chunk each, and chunks whose accumulators are loaded at once.
static constexpr int64_t lanes = 32, chunksAtOnce = 16;
/// The number of columns of a lane that are merged at once.
static constexpr int64_t columnsPerLane = 4;

namespace {

class LoopMerger {
public:
  LoopMerger(const Emitter &e, scf::ForOp loop, MergeOp op)
      : e(e), loop(loop), op(op), state(op.getState()), begin(loop.getLowerBound()), end(loop.getUpperBound()) {}

  /// Whether the body of `loop` only selects the states that `op` merges.
  static bool fits(scf::ForOp loop, MergeOp op) {
    if (!loop.getInitArgs().empty() || !isConstantIntValue(loop.getStep(), 1))
      return false;
    for (Operation &inner : loop.getBody()->without_terminator())
      if (&inner != op && !isMemoryEffectFree(&inner))
        return false;
    return llvm::all_of(op.getState().getParts(), [&](Value part) { return loop.isDefinedOutsideOfLoop(part); });
  }

  void run() {
    lane = e.rem(e.thread(), lanes);
    e.barrier();
    Value rows = e.size(state.acc, 0), warp = e.toIndex(e.div(e.thread(), lanes));
    e.loop(warp, rows, warps, [&](Value row) {
      for (auto [i, tally] : llvm::enumerate(state.tallies))
        mergeRow(row, tally, [i](const State &part) { return part.tallies[i]; });
      SmallVector<Value> merged = mergeRow(row, state.acc, [](const State &part) { return part.acc; });
      Value isFirst = e.compare(arith::CmpIPredicate::eq, lane, e.i32(0));
      NVVM::SyncWarpOp::create(e.b, e.loc, e.i32(-1));
      e.ifElse(isFirst, [&] {
        for (auto [value, buffer] : llvm::zip_equal(merged, rowBuffers(state)))
          e.storeShared(value, buffer, {row});
      });
    });
    e.barrier();
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

  /// Calls `body` with the state of an iteration.
  void withChunk(Value chunk, function_ref<void(const State &)> body) {
    IRMapping mapping;
    mapping.map(loop.getInductionVar(), e.min(chunk, e.sub(end, e.index(1))));
    Operation *clone = nullptr;
    for (Operation &inner : loop.getBody()->without_terminator()) {
      Operation *next = e.b.clone(inner, mapping);
      if (&inner == op)
        clone = next;
    }
    body(cast<MergeOp>(clone).getOtherState());
    clone->erase();
  }

  /// Merges a row of `into`, the accumulator or a tally, with the same row of each state, whose matrix `select`
  /// returns. Returns the merged values of `loadRow`.
  SmallVector<Value> mergeRow(Value row, Value into, function_ref<Value(const State &)> select) {
    int64_t columns = cast<MemRefType>(into.getType()).getDimSize(1);
    SmallVector<Value> merged;
    for (int64_t first = 0; first < columns; first += lanes * columnsPerLane) {
      SmallVector<Value> places;
      for (int64_t i = first; i < std::min(columns, first + lanes * columnsPerLane); i += lanes)
        places.push_back(e.add(e.toIndex(lane), i));
      merged = mergeColumns(row, into, columns, places, select);
    }
    return merged;
  }

  /// The same for the columns `places` of the lane, which may be beyond the matrix.
  SmallVector<Value> mergeColumns(Value row, Value into, int64_t columns, ArrayRef<Value> places,
                                  function_ref<Value(const State &)> select) {
    SmallVector<Value> clamped = llvm::map_to_vector(
        places, [&](Value place) { return columns % lanes == 0 ? place : e.min(place, e.index(columns - 1)); });
    SmallVector<Value> carried = loadRow(state, row);
    size_t rowValues = carried.size();
    for (Value place : clamped)
      carried.push_back(e.load(into, {row, place}));
    carried = e.loop(begin, end, lanes, carried, [&](Value first, ValueRange before) {
      SmallVector<Value> values(before);
      Value factor = mergeRowValues(first, row, MutableArrayRef(values).take_front(rowValues),
                                    MutableArrayRef(values).drop_front(rowValues));
      Value count = e.toI32(e.min(e.sub(end, first), e.index(lanes)));
      SmallVector<Value> sums(ArrayRef(values).drop_front(rowValues));
      sums = e.loop(e.i32(0), count, chunksAtOnce, sums, [&](Value i, ValueRange before) {
        return addChunks(first, i, row, clamped, factor, select, before);
      });
      values.truncate(rowValues);
      llvm::append_range(values, sums);
      return values;
    });
    // Lanes beyond the matrix have read its last column.
    NVVM::SyncWarpOp::create(e.b, e.loc, e.i32(-1));
    for (auto [place, value] : llvm::zip_equal(places, ArrayRef(carried).drop_front(rowValues))) {
      auto store = [&, place = place, value = value] { e.storeShared(value, into, {row, place}); };
      if (columns % lanes == 0)
        store();
      else
        e.ifElse(e.isLess(place, e.index(columns)), store);
    }
    carried.truncate(rowValues);
    return carried;
  }

  /// Merges the values of `loadRow` with those of the chunks from `first` on, one per lane, and rescales `sums`.
  /// Returns the factor of the lane's chunk, 0 if there is none.
  Value mergeRowValues(Value first, Value row, MutableArrayRef<Value> values, MutableArrayRef<Value> sums) {
    Value chunk = e.add(first, e.toIndex(lane)), isChunk = e.isLess(chunk, end);
    SmallVector<Value> part;
    withChunk(chunk, [&](const State &other) { part = loadRow(other, row); });
    Value max = e.select(isChunk, part[0], e.minusInfinity());
    Value newest = e.maxf(values[0], e.reduceLanes(max, lanes, [&](Value x, Value y) { return e.maxf(x, y); }));
    Value base = e.zeroIfMinusInfinity(newest);
    Value factor = emitFactor(e, max, base, op.getNaturalMax());
    Value before = emitFactor(e, values[0], base, op.getNaturalMax());
    // The sum of a row without keys is 0.
    Value weighted = e.select(isChunk, e.mulf(part[1], factor), e.scalar(0.0));
    Value sum = e.reduceLanes(weighted, lanes, [&](Value x, Value y) { return e.addf(x, y); });
    values[0] = newest;
    values[1] = e.addf(e.mulf(values[1], before), sum);
    if (values.size() > 2)
      mergeMaxima(values.drop_front(2), e.select(isChunk, part[2], e.minusInfinity()),
                  part.size() > 3 ? part[3] : Value());
    for (Value &each : sums)
      each = e.mulf(each, before);
    return factor;
  }

  /// Merges the row maximum and its key with those of all lanes, whose keys are later.
  void mergeMaxima(MutableArrayRef<Value> values, Value max, Value argmax) {
    std::tie(max, argmax) = reduceMax(e, max, argmax, lanes);
    Value isLarger = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OGT, max, values[0]);
    values[0] = e.select(isLarger, max, values[0]);
    if (argmax)
      values[1] = e.select(isLarger, argmax, values[1]);
  }

  /// `sums` plus the columns `places` of the chunks first + [i, i + chunksAtOnce), each times the factor of its lane.
  SmallVector<Value> addChunks(Value first, Value i, Value row, ArrayRef<Value> places, Value factor,
                               function_ref<Value(const State &)> select, ValueRange sums) {
    SmallVector<SmallVector<Value>> loaded;
    for (int64_t c = 0; c < chunksAtOnce; ++c)
      withChunk(e.add(first, e.toIndex(e.add(i, c))), [&](const State &part) {
        loaded.push_back(llvm::map_to_vector(places, [&](Value place) { return e.load(select(part), {row, place}); }));
      });
    SmallVector<Value> results(sums);
    for (auto [c, columns] : llvm::enumerate(loaded)) {
      Value lane = e.add(i, static_cast<int64_t>(c));
      Value isChunk = e.isLess(e.add(first, e.toIndex(lane)), end), ofChunk = e.shuffleFrom(factor, lane);
      for (auto [result, column] : llvm::zip_equal(results, columns))
        result = e.fma(e.select(isChunk, column, e.scalar(0.0)), ofChunk, result);
    }
    return results;
  }

  Emitter e;
  scf::ForOp loop;
  MergeOp op;
  State state;
  Value begin, end; ///< of the loop
  Value lane;       ///< i32
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
