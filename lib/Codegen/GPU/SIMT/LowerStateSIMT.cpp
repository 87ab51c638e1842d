//===- LowerStateSIMT.cpp - Merge and finalize states in memory ---------------===//
//
// Split-KV tasks store their states in global memory; their elements are distributed over the threads of a CTA. The
// states of all chunks are merged in one loop, with the merged state in registers. The pass runs after the attention
// lowerings, which finalize thread-private states themselves.
//
//===----------------------------------------------------------------------===//
#include "../AttentionState.h"
#include "../GlobalMatrix.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Support/Kernels.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERSTATESIMT
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

/// Calls `body` with row and column (index) of each element of `rows` × `columns`, distributed over the threads.
static void forElements(Emitter &e, Value rows, int64_t columns, function_ref<void(Value, Value)> body) {
  e.loop(e.thread(), e.toI32(e.mul(rows, columns)), threadsPerCTA,
         [&](Value i) { body(e.toIndex(e.div(i, columns)), e.toIndex(e.rem(i, columns))); });
}

static void lowerMerge(Emitter &e, MergeOp op) {
  State state = op.getState(), other = op.getOtherState();
  Value rows = e.size(state.acc, 0);
  auto mergedRow = [&](Value row) {
    return mergeRow(e, e.load(state.max, {row}), e.load(state.sum, {row}), e.load(other.max, {row}),
                    e.load(other.sum, {row}));
  };
  auto mergeElements = [&](Value into, Value from) {
    forElements(e, rows, cast<MemRefType>(into.getType()).getDimSize(1), [&](Value row, Value column) {
      MergedRow merged = mergedRow(row);
      Value sum = e.mulf(e.load(into, {row, column}), merged.stateFactor);
      Value otherSum = e.mulf(e.load(from, {row, column}), merged.otherFactor);
      e.storeShared(e.addf(sum, otherSum), into, {row, column});
    });
  };
  e.barrier();
  mergeElements(state.acc, other.acc);
  for (auto [into, from] : llvm::zip_equal(state.tallies, other.tallies))
    mergeElements(into, from);
  // All threads have read the old maxima and sums.
  e.barrier();
  forElements(e, rows, 1, [&](Value row, Value) {
    MergedRow merged = mergedRow(row);
    e.storeShared(merged.max, state.max, {row});
    e.storeShared(merged.sum, state.sum, {row});
    if (state.rowMax)
      mergeRowMax(e, state, row, e.load(other.rowMax, {row}), state.argmax ? e.load(other.argmax, {row}) : Value());
  });
  e.barrier();
}

/// The number of chunks whose states are loaded before they are merged, to overlap the latencies of their loads.
static constexpr int64_t chunksAtOnce = 8;
/// The number of columns of a row that a thread merges.
static constexpr int64_t columnsPerThread = 4;

namespace {

/// Merges the states of all iterations of a loop. A thread keeps its columns of a row in registers and loads several
/// states at once; a merge per iteration would wait for memory in each.
class LoopMerger {
public:
  LoopMerger(const Emitter &e, scf::ForOp loop, MergeOp op) : e(e), loop(loop), op(op), state(op.getState()) {}

  /// Whether the body of `loop` only selects the states that `op` merges, and the threads have all columns of a row.
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
      return isOutside(matrix) && threadsPerRow(cast<MemRefType>(matrix.getType()).getDimSize(1)) <= threadsPerCTA;
    };
    return llvm::all_of(matrices, isNarrow) &&
           llvm::all_of(ArrayRef<Value>{state.max, state.sum, state.rowMax, state.argmax}, isOutside);
  }

  void run() {
    e.barrier();
    for (auto [i, tally] : llvm::enumerate(state.tallies))
      mergeMatrix(tally, [i](const State &part) { return part.tallies[i]; }, /*storesRows=*/false);
    mergeMatrix(state.acc, [](const State &part) { return part.acc; }, /*storesRows=*/true);
    e.barrier();
  }

private:
  static int64_t threadsPerRow(int64_t columns) {
    return columns % columnsPerThread == 0 ? columns / columnsPerThread : columns;
  }

  /// Maximum, sum and, if the state has them, row maximum and its key.
  SmallVector<Value> loadRow(const State &part, Value row) {
    SmallVector<Value> values = {e.load(part.max, {row}), e.load(part.sum, {row})};
    for (Value other : {part.rowMax, part.argmax})
      if (other)
        values.push_back(e.load(other, {row}));
    return values;
  }

  /// Merges `into`, the accumulator or a tally, with the same matrix of each state, which `select` returns.
  void mergeMatrix(Value into, function_ref<Value(const State &)> select, bool storesRows) {
    int64_t columns = cast<MemRefType>(into.getType()).getDimSize(1), threads = threadsPerRow(columns);
    int64_t rowsAtOnce = threadsPerCTA / threads;
    Value localRow = e.toIndex(e.div(e.thread(), threads)), column = e.toIndex(e.rem(e.thread(), threads));
    Value rows = e.size(state.acc, 0), isThread = e.isLess(localRow, e.index(rowsAtOnce));
    SmallVector<Value> places;
    for (int64_t i = 0; i < columns; i += threads)
      places.push_back(e.add(column, i));
    e.loop(e.index(0), rows, rowsAtOnce, [&](Value first) {
      Value row = e.add(first, localRow), isActive = e.andi(isThread, e.isLess(row, rows));
      SmallVector<Value> merged = e.choose(
          isActive, [&] { return mergeChunks(into, select, row, places); },
          [&] {
            SmallVector<Value> zeros;
            for (Value buffer : rowBuffers())
              zeros.push_back(
                  arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(getElementTypeOrSelf(buffer))).getResult());
            return zeros;
          });
      if (!storesRows)
        return;
      // All threads have read the old row.
      e.barrier();
      e.ifElse(e.andi(isActive, e.isEqual(column, e.index(0))), [&] {
        for (auto [value, buffer] : llvm::zip_equal(merged, rowBuffers()))
          e.storeShared(value, buffer, {row});
      });
    });
  }

  SmallVector<Value> rowBuffers() {
    SmallVector<Value> buffers = {state.max, state.sum};
    for (Value other : {state.rowMax, state.argmax})
      if (other)
        buffers.push_back(other);
    return buffers;
  }

  /// Merges the columns `places` of a row, and returns the merged values of `loadRow`.
  SmallVector<Value> mergeChunks(Value into, function_ref<Value(const State &)> select, Value row,
                                 ArrayRef<Value> places) {
    SmallVector<Value> carried = loadRow(state, row);
    size_t rowValues = carried.size();
    for (Value place : places)
      carried.push_back(e.load(into, {row, place}));
    Value end = loop.getUpperBound();
    carried = e.loop(loop.getLowerBound(), end, chunksAtOnce, carried, [&](Value first, ValueRange before) {
      SmallVector<SmallVector<Value>> parts;
      for (int64_t i = 0; i < chunksAtOnce; ++i)
        parts.push_back(loadChunk(e.add(first, i), end, select, row, places));
      SmallVector<Value> values(before);
      for (ArrayRef<Value> part : parts)
        mergeValues(values, part, rowValues);
      return values;
    });
    for (auto [place, value] : llvm::zip_equal(places, ArrayRef(carried).drop_front(rowValues)))
      e.storeShared(value, into, {row, place});
    carried.truncate(rowValues);
    return carried;
  }

  /// The values of `loadRow` and the columns of the state of iteration `chunk`; the empty state beyond `end`.
  SmallVector<Value> loadChunk(Value chunk, Value end, function_ref<Value(const State &)> select, Value row,
                               ArrayRef<Value> places) {
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
    SmallVector<Value> values = loadRow(part, row);
    for (auto [i, value] : llvm::enumerate(values)) {
      // The maxima of no keys are −∞, their position is not used.
      Type type = value.getType();
      bool isMax = i == 0 || (i == 2 && isa<FloatType>(type));
      Value empty = isMax ? e.minusInfinity() : arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(type)).getResult();
      value = e.select(isChunk, value, empty);
    }
    for (Value place : places)
      values.push_back(e.select(isChunk, e.load(select(part), {row, place}), e.scalar(0.0)));
    clone->erase();
    return values;
  }

  void mergeValues(SmallVector<Value> &values, ArrayRef<Value> part, size_t rowValues) {
    MergedRow merged = mergeRow(e, values[0], values[1], part[0], part[1]);
    values[0] = merged.max, values[1] = merged.sum;
    if (rowValues > 2) {
      Value isLarger = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OGT, part[2], values[2]);
      for (size_t i = 2; i < rowValues; ++i)
        values[i] = e.select(isLarger, part[i], values[i]);
    }
    for (size_t i = rowValues; i < values.size(); ++i)
      values[i] = e.addf(e.mulf(values[i], merged.stateFactor), e.mulf(part[i], merged.otherFactor));
  }

  Emitter e;
  scf::ForOp loop;
  MergeOp op;
  State state;
};

} // namespace

static void lowerFinalize(Emitter &e, FinalizeOp op) {
  GlobalMatrix output(e, op.getOutput(), op.getOutputDims());
  auto normalized = [&](Value row, Value x) { return normalize(e, finalizeRow(e, e.load(op.getSum(), {row})), x); };
  forElements(e, output.rows, output.columns, [&](Value row, Value column) {
    Value x = e.truncate(normalized(row, e.load(op.getAcc(), {row, column})), output.element);
    LLVM::StoreOp::create(e.b, e.loc, x, output.address(e, row, column));
  });
  for (auto [from, to] : llvm::zip_equal(op.getOthers(), op.getOtherOutputs())) {
    GlobalMatrix part(e, to);
    bool isTally = cast<MemRefType>(from.getType()).getRank() == 2;
    forElements(e, output.rows, isTally ? part.columns : 1, [&, from = from](Value row, Value column) {
      Value x = isTally ? normalized(row, e.load(from, {row, column})) : e.load(from, {row});
      LLVM::StoreOp::create(e.b, e.loc, x, part.address(e, row, column));
    });
  }
  if (!op.getLse())
    return;
  GlobalMatrix lse(e, op.getLse());
  forElements(e, output.rows, 1, [&](Value row, Value) {
    Value x = emitLogSumExp(e, e.load(op.getMax(), {row}), e.load(op.getSum(), {row}));
    LLVM::StoreOp::create(e.b, e.loc, x, lse.address(e, row, e.index(0)));
  });
}

namespace {

struct LowerStateSIMT : saccade::impl::LowerStateSIMTBase<LowerStateSIMT> {
  void runOnOperation() override {
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (isa<MergeOp, FinalizeOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      auto loop = op->getParentOfType<scf::ForOp>();
      if (auto merge = dyn_cast<MergeOp>(op); merge && loop && op->getParentOp() == loop && LoopMerger::fits(loop, merge)) {
        OpBuilder b(loop);
        LoopMerger({b, op->getLoc(), cast<FloatType>(getElementTypeOrSelf(op->getOperand(0)))}, loop, merge).run();
        loop.erase();
        continue;
      }
      OpBuilder b(op);
      Emitter e{b, op->getLoc(), cast<FloatType>(getElementTypeOrSelf(op->getOperand(0)))};
      if (auto merge = dyn_cast<MergeOp>(op))
        lowerMerge(e, merge);
      else
        lowerFinalize(e, cast<FinalizeOp>(op));
      op->erase();
    }
    if (!ops.empty() && !getOperation()->hasAttr(familyAttr))
      getOperation()->setAttr(familyAttr, StringAttr::get(&getContext(), "simt, states merged"));
  }
};

} // namespace
