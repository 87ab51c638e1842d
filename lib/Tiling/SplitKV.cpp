//===- SplitKV.cpp - Split-KV tiling of attention -----------------------------===//
//
// Emits parallel loops over the items of a plan (flash-decoding; Dao et al. 2023). The first computes partial states,
// the second merges those of a head. Heads with a single chunk are finalized by the first loop. A weight region that
// requires normalized weights adds a second pass over the keys.
//
//===----------------------------------------------------------------------===//
#include "SplitKV.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Analysis/Stability.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// The rows of a state are rounded up to blocks of registers.
static constexpr int64_t rowBlock = 4;

/// The most rows that a task merges. If items have more, a task merges those of one head: a warp takes one row after
/// the other, and waits for memory in each.
static constexpr int64_t maxMergedRows = 16;

namespace {

struct SplitKVTiler {
  SplitKVTiler(OpBuilder &b, AttentionOp op, Sequences &sequences, Value isUsed, bool onDevice,
               OutputEpilogue *epilogue)
      : e(b, op.getLoc()), op(op), sequences(sequences), epilogue(epilogue), plan(b, op, sequences, onDevice),
        whole(b, op), stateRows(llvm::alignTo(op.getSplitKvAttr().getRows(), rowBlock)),
        mergesHeads(onDevice && op.getSplitKvAttr().getRows() > maxMergedRows) {
    if (isUsed)
      plan.items = e.select(isUsed, plan.items, e.index(0));
    groups = isUsed ? e.select(isUsed, sequences.count, e.index(0)) : sequences.count;
  }

  IndexEmitter e;
  AttentionOp op;
  Sequences &sequences;
  OutputEpilogue *epilogue; ///< null without one
  SplitPlan plan;
  AttentionSteps whole; ///< for shapes only
  int64_t stateRows;    ///< the largest number of rows of a state in memory
  bool mergesHeads;     ///< whether a task merges one head
  Value groups;         ///< number of sequences whose states are merged

  /// A sequence in a task, and the heads that the task computes.
  struct Task {
    AttentionSteps steps;
    SplitPlan::Group group;
    Heads heads;
    Value rows;      ///< of the state, rounded up
    int64_t maxRows; ///< of the state
  };
  Task makeTask(SplitPlan::Group group, Value tile, Value isItem = nullptr);

  /// Emits a parallel loop over `extents`. `body` returns the value to insert into each of `outs`, and where.
  using Insertions = SmallVector<std::pair<Value, Slice>>;
  SmallVector<Value> forTasks(ArrayRef<Value> extents, ValueRange outs,
                              function_ref<Insertions(ValueRange indices, ValueRange outs)> body);

  /// The parts of `count` states in memory, uninitialized. Large ones have as many rows as an item can have.
  SmallVector<Value> makeStates(Value count) {
    OpFoldResult rows = e.b.getIndexAttr(stateRows);
    if (mergesHeads)
      rows = getAsOpFoldResult(roundedUp(plan.maxRows(e.b)));
    return whole.emptyState(getAsOpFoldResult(count), rows).getParts();
  }
  Value roundedUp(Value rows) {
    Value block = e.index(rowBlock);
    return e.mul(e.ceilDiv(rows, block), block);
  }
  /// Rows of a state: those from `first` on with a distance of `step`.
  struct Rows {
    Value count;
    OpFoldResult first, step;
  };
  Rows firstRows(Value count) { return {count, e.b.getIndexAttr(0), e.b.getIndexAttr(1)}; }
  Slice partSlice(Value part, Value place, const Rows &rows);
  State stateAt(ValueRange states, Value place, const Rows &rows);
  /// A new state of `rows` rows without keys, in memory of the task.
  State localState(Task &task) { return task.steps.rowsOf(task.steps.newState(task.maxRows), task.rows); }
  /// Sinks are in the state into which chunks are merged, not in that of the first chunk. Which chunk is the first
  /// depends on the queries of a task, and the bits of a row must not.
  bool mergesSinks() { return op.getSink() && op.getSplitKvAttr().getAll(); }
  State localStateWithSinks(Task &task) {
    State state = localState(task);
    if (mergesSinks())
      task.steps.addSinks(state, task.heads, task.heads.count);
    return state;
  }
  State merge(const State &from, const State &into);
  State mergeChunks(Task &task, ValueRange states, Value tile, Value chunks, const Rows &rows);
  Slice resultSlice(Task &task, Value result, bool isWithinTask, Heads heads);
  Insertions finalize(Task &task, const State &state, Value isActive, ValueRange outs);
  State accumulateChunk(Task &task, const State &state, Value chunk, bool isFinal);

  SmallVector<Value> accumulateChunks(ArrayRef<Value> outs, bool finalizesSingle);
  SmallVector<Value> mergeToResults(ValueRange states, ValueRange inits);
  SmallVector<Value> mergeToStates(ValueRange states);
  Value accumulateFinal(ValueRange merged);
  SmallVector<Value> mergeFinal(ValueRange merged, Value accs, ValueRange inits);
  /// The place of the merged state of a head tile.
  Value placeOf(const SplitPlan::Group &group, Value tile) {
    return e.add(e.mul(e.add(e.mul(group.sequence, plan.kvHeads), group.kvHead), plan.maxTiles), tile);
  }
};

/// The task of a head tile; without queries and keys if `isItem` (null means true) is false.
SplitKVTiler::Task SplitKVTiler::makeTask(SplitPlan::Group group, Value tile, Value isItem) {
  AttentionSteps steps(e.b, sequences.extract(e.b, group.sequence));
  Heads heads = plan.heads(e.b, group, tile);
  if (isItem) {
    group.queries = e.select(isItem, group.queries, e.index(0));
    steps.validQueries = e.select(isItem, steps.validQueries, e.index(0));
    steps.keys = e.select(isItem, steps.keys, e.index(0));
  }
  return {steps, group, heads, roundedUp(e.mul(heads.count, group.queries)), stateRows};
}

SmallVector<Value> SplitKVTiler::forTasks(ArrayRef<Value> extents, ValueRange outs,
                                          function_ref<Insertions(ValueRange, ValueRange)> body) {
  SmallVector<OpFoldResult> bounds = getAsOpFoldResult(extents);
  auto loop = scf::ForallOp::create(e.b, e.loc, bounds, outs, taskMapping(e.b.getContext(), bounds.size()));
  OpBuilder::InsertionGuard guard(e.b);
  e.b.setInsertionPointToStart(loop.getBody());
  Insertions insertions = body(loop.getInductionVars(), loop.getRegionIterArgs());
  e.b.setInsertionPointToStart(loop.getTerminator().getBody());
  for (auto [insertion, all] : llvm::zip_equal(insertions, loop.getRegionIterArgs())) {
    auto &[value, slice] = insertion;
    tensor::ParallelInsertSliceOp::create(e.b, e.loc, value, all, slice.offsets, slice.sizes, slice.strides);
  }
  return SmallVector<Value>(loop.getResults());
}

/// Some rows of the state at `place` in a part of all states.
Slice SplitKVTiler::partSlice(Value part, Value place, const Rows &rows) {
  auto type = cast<ShapedType>(part.getType());
  OpFoldResult zero = e.b.getIndexAttr(0), one = e.b.getIndexAttr(1);
  Slice slice;
  slice.addPosition(place);
  slice.add(rows.first, getAsOpFoldResult(rows.count), rows.step);
  if (type.getRank() == 3)
    slice.add(zero, e.b.getIndexAttr(type.getShape().back()), one);
  return slice;
}

State SplitKVTiler::stateAt(ValueRange states, Value place, const Rows &rows) {
  return State(ValueRange(
      llvm::map_to_vector(states, [&](Value part) { return partSlice(part, place, rows).extract(e.b, e.loc, part); })));
}

State SplitKVTiler::merge(const State &from, const State &into) {
  SmallVector<Value> parts = into.getParts();
  auto merged = MergeOp::create(e.b, e.loc, TypeRange(ValueRange(parts)), from.getParts(), parts, whole.hasNaturalMax(),
                                op.getStickBreaking());
  return State(merged->getResults());
}

/// Merges `rows` of the first `chunks` chunks of a head tile, from left to right. They are the rows of the task.
State SplitKVTiler::mergeChunks(Task &task, ValueRange states, Value tile, Value chunks, const Rows &rows) {
  SplitPlan::Group &group = task.group;
  SmallVector<Value> empty = localStateWithSinks(task).getParts();
  return State(ValueRange(e.loop(e.index(0), chunks, 1, empty, [&](Value chunk, ValueRange carried) {
    Value item = e.add(group.firstItem, e.add(e.mul(chunk, group.stride), tile));
    return merge(stateAt(states, item, rows), State(carried)).getParts();
  })));
}

/// The slice of the queries of `heads` in a result of `op`, or in such a slice for the heads of a task.
Slice SplitKVTiler::resultSlice(Task &task, Value result, bool isWithinTask, Heads heads) {
  OpFoldResult zero = e.b.getIndexAttr(0), one = e.b.getIndexAttr(1);
  Slice slice;
  for (auto [dim, extent] : llvm::zip_equal(op.getResultDims(result), cast<ShapedType>(result.getType()).getShape())) {
    if (dim == Dim::Batch && !isWithinTask)
      slice.addPosition(task.group.sequence);
    else if (dim == Dim::Head && !heads.count)
      slice.addPosition(heads.first);
    else if (dim == Dim::Head)
      slice.add(heads.first, getAsOpFoldResult(heads.count), one);
    else if (dim == Dim::Seq)
      slice.add(isWithinTask ? zero : getAsOpFoldResult(sequences.start(e.b, Role::Query, task.group.sequence)),
                getAsOpFoldResult(task.group.queries), one);
    else if (dim == Dim::Depth)
      slice.add(zero,
                result == op.getOutput() ? getDimSize(e.b, e.loc, op.getValue(), op.getValueDims(), Dim::Depth)
                                         : OpFoldResult(e.b.getIndexAttr(extent)),
                one);
  }
  return slice;
}

/// Finalizes the results of the heads of a task into `outs` (one per result of `op`, ordered). If `isActive` (null
/// means true) is false, these are unchanged.
SplitKVTiler::Insertions SplitKVTiler::finalize(Task &task, const State &state, Value isActive, ValueRange outs) {
  Insertions insertions;
  SmallVector<Value> results = whole.orderedResults(), tiles;
  for (auto [result, all] : llvm::zip_equal(results, outs)) {
    insertions.push_back({Value(), resultSlice(task, result, /*isWithinTask=*/false, task.heads)});
    tiles.push_back(insertions.back().second.extract(e.b, e.loc, all));
  }
  Value count = isActive ? e.select(isActive, task.heads.count, e.index(0)) : task.heads.count;
  tiles = e.loop(e.index(0), count, 1, tiles, [&](Value head, ValueRange carried) {
    SmallVector<Slice> slices;
    SmallVector<Value> destinations, next;
    for (auto [result, tile] : llvm::zip_equal(results, carried)) {
      slices.push_back(resultSlice(task, result, /*isWithinTask=*/true, {head, Value()}));
      destinations.push_back(slices.back().extract(e.b, e.loc, tile));
    }
    State rows = task.steps.rowsOfHead(state, task.heads, head, task.group.queries);
    SmallVector<Value> done = task.steps.finalize(rows, destinations, ScheduleAttr());
    if (epilogue) {
      Heads whole{e.add(task.heads.first, head), Value()};
      done[0] = epilogue->emit(e.b, done[0], resultSlice(task, results[0], /*isWithinTask=*/false, whole));
    }
    for (auto [value, tile, slice] : llvm::zip_equal(done, carried, slices))
      next.push_back(slice.insert(e.b, e.loc, value, tile));
    return next;
  });
  for (auto [insertion, tile] : llvm::zip_equal(insertions, tiles))
    insertion.first = tile;
  return insertions;
}

/// Accumulates one chunk of keys into the state of the rows of a task.
State SplitKVTiler::accumulateChunk(Task &task, const State &state, Value chunk, bool isFinal) {
  AttentionSteps &steps = task.steps;
  SplitKVAttr schedule = op.getSplitKvAttr();
  Value size = e.index(schedule.getCols()), begin = e.sub(e.mul(chunk, size), steps.at.key);
  Value end = e.min(e.min(steps.keys, e.sub(steps.keyEnd, steps.at.key)), e.add(begin, size));
  Value start = e.min(e.max(e.index(0), begin), steps.keys), count = e.max(e.index(0), e.sub(end, start));
  Value query = steps.tile(steps.op.getQuery(), op.getQueryDims(), task.heads, e.index(0), steps.validQueries);
  // A task may begin at any key.
  FiniteMax finiteMax = getFiniteMax(op) == FiniteMax::EveryStep ? FiniteMax::EveryStep : FiniteMax::Never;
  AttentionSteps::Step step{ScheduleAttr::get(op.getContext(), schedule.getRows(), schedule.getCols(), 0),
                            /*unpacked=*/true, isFinal, finiteMax};
  return steps.accumulate(state, query, task.heads, task.group.kvHead, start, count, step);
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

/// The first loop: the partial state of each item, and with `finalizesSingle` the results of heads with one chunk.
SmallVector<Value> SplitKVTiler::accumulateChunks(ArrayRef<Value> outs, bool finalizesSingle) {
  return forTasks(plan.items, outs, [&](ValueRange indices, ValueRange all) {
    SplitPlan::Item item = plan.item(e.b, indices[0]);
    Task task = makeTask(item.group, item.tile, item.isItem);
    unsigned parts = finalizesSingle ? all.size() - op->getNumResults() : all.size();
    Insertions insertions;
    SmallVector<Value> slices;
    for (Value part : all.take_front(parts)) {
      insertions.push_back({Value(), partSlice(part, indices[0], firstRows(task.rows))});
      slices.push_back(insertions.back().second.extract(e.b, e.loc, part));
    }
    State state = task.steps.filledState(State(slices));
    if (!mergesSinks())
      task.steps.addSinks(state, task.heads, e.select(item.isFirst, task.heads.count, e.index(0)));
    state = accumulateChunk(task, state, item.chunk, /*isFinal=*/false);
    for (auto [insertion, part] : llvm::zip_equal(insertions, state.getParts()))
      insertion.first = part;
    if (finalizesSingle) {
      Value isSingle = e.isEqual(item.group.chunks, e.index(1));
      if (mergesSinks())
        state = merge(state, localStateWithSinks(task));
      llvm::append_range(insertions, finalize(task, state, isSingle, all.drop_front(parts)));
    }
    task.steps.op.erase();
    return insertions;
  });
}

/// Merges the partial states of heads with several chunks into results.
SmallVector<Value> SplitKVTiler::mergeToResults(ValueRange states, ValueRange inits) {
  Value count = plan.isSingle ? e.select(plan.isSingle, e.index(0), groups) : groups;
  Value tasks = mergesHeads ? plan.headsPerKVHead : plan.maxTiles;
  return forTasks({count, plan.kvHeads, tasks}, inits, [&](ValueRange indices, ValueRange all) {
    SplitPlan::Group group = plan.group(e.b, indices[0], indices[1]);
    Value tile = mergesHeads ? plan.tileOf(e.b, group, indices[2]) : indices[2];
    Task task = makeTask(group, tile);
    Rows rows = firstRows(task.rows);
    if (mergesHeads) {
      Value head = e.add(e.mul(group.kvHead, plan.headsPerKVHead), indices[2]);
      rows = {group.queries, getAsOpFoldResult(e.sub(head, task.heads.first)), getAsOpFoldResult(task.heads.count)};
      task.heads = {head, e.index(1)};
      task.rows = group.queries, task.maxRows = op.getSplitKvAttr().getQueries();
    }
    Value isActive = e.isLess(e.index(1), group.chunks);
    State state = mergeChunks(task, states, tile, e.select(isActive, group.chunks, e.index(0)), rows);
    Insertions insertions = finalize(task, state, isActive, all);
    task.steps.op.erase();
    return insertions;
  });
}

//===----------------------------------------------------------------------===//
// The second pass, for weight regions that take normalized weights
//===----------------------------------------------------------------------===//

/// Merges the partial states of each head tile.
SmallVector<Value> SplitKVTiler::mergeToStates(ValueRange states) {
  SmallVector<Value> outs = makeStates(e.mul(e.mul(sequences.count, plan.kvHeads), plan.maxTiles));
  return forTasks({groups, plan.kvHeads, plan.maxTiles}, outs, [&](ValueRange indices, ValueRange all) {
    Task task = makeTask(plan.group(e.b, indices[0], indices[1]), indices[2]);
    State state = mergeChunks(task, states, indices[2], task.group.chunks, firstRows(task.rows));
    Insertions insertions;
    for (auto [part, place] : llvm::zip_equal(state.getParts(), all))
      insertions.push_back({part, partSlice(place, placeOf(task.group, indices[2]), firstRows(task.rows))});
    task.steps.op.erase();
    return insertions;
  });
}

/// Accumulates the values of each item with final maxima and sums. Returns the accumulators.
Value SplitKVTiler::accumulateFinal(ValueRange merged) {
  Value accs = makeStates(plan.items)[0];
  return forTasks(plan.items, accs, [&](ValueRange indices, ValueRange all) {
    SplitPlan::Item item = plan.item(e.b, indices[0]);
    Task task = makeTask(item.group, item.tile, item.isItem);
    // A step owns its state, so it takes a copy of the merged one.
    Rows rows = firstRows(task.rows);
    State whole = merge(stateAt(merged, placeOf(item.group, item.tile), rows), localState(task)), state;
    Slice slice = partSlice(all[0], indices[0], rows);
    state.acc = slice.extract(e.b, e.loc, all[0]);
    state.max = whole.max, state.sum = whole.sum;
    state.acc = task.steps.filledState(state).acc;
    state = accumulateChunk(task, state, item.chunk, /*isFinal=*/true);
    task.steps.op.erase();
    return Insertions{{state.acc, slice}};
  })[0];
}

/// Adds the accumulators of each head tile and finalizes its results.
SmallVector<Value> SplitKVTiler::mergeFinal(ValueRange merged, Value accs, ValueRange inits) {
  return forTasks({groups, plan.kvHeads, plan.maxTiles}, inits, [&](ValueRange indices, ValueRange all) {
    Task task = makeTask(plan.group(e.b, indices[0], indices[1]), indices[2]);
    State state = stateAt(merged, placeOf(task.group, indices[2]), firstRows(task.rows)), empty = localState(task);
    // All accumulators have the same maximum, so a merge adds them. The sums of these merges are not used.
    Value parts[] = {empty.acc, empty.max, empty.sum};
    state.acc = e.loop(e.index(0), task.group.chunks, 1, parts, [&](Value chunk, ValueRange carried) {
      Value item = e.add(task.group.firstItem, e.add(e.mul(chunk, task.group.stride), indices[2]));
      State other;
      other.acc = partSlice(accs, item, firstRows(task.rows)).extract(e.b, e.loc, accs);
      other.max = state.max, other.sum = state.sum;
      return merge(other, State(carried)).getParts();
    })[0];
    Insertions insertions = finalize(task, state, e.isLess(e.index(0), task.group.chunks), all);
    task.steps.op.erase();
    return insertions;
  });
}

} // namespace

SmallVector<Value> saccade::tileSplitKV(OpBuilder &b, AttentionOp op, Sequences &sequences, Value isUsed,
                                        ValueRange inits, bool onDevice, OutputEpilogue *epilogue) {
  SplitKVTiler tiler(b, op, sequences, isUsed, onDevice, epilogue);
  SmallVector<Value> results = tiler.whole.orderedResults();
  SmallVector<Value> outs =
      llvm::map_to_vector(results, [&](Value result) { return inits[cast<OpResult>(result).getResultNumber()]; });
  SmallVector<Value> states = tiler.makeStates(tiler.plan.items);
  unsigned parts = states.size();
  if (!needsSoftmaxWeights(op)) {
    llvm::append_range(states, outs);
    states = tiler.accumulateChunks(states, /*finalizesSingle=*/true);
    outs = tiler.mergeToResults(ArrayRef(states).take_front(parts), ArrayRef(states).drop_front(parts));
  } else {
    states = tiler.accumulateChunks(states, /*finalizesSingle=*/false);
    SmallVector<Value> merged = tiler.mergeToStates(states);
    outs = tiler.mergeFinal(merged, tiler.accumulateFinal(merged), outs);
  }
  SmallVector<Value> ordered(inits);
  for (auto [result, value] : llvm::zip_equal(results, outs))
    ordered[cast<OpResult>(result).getResultNumber()] = value;
  return ordered;
}
