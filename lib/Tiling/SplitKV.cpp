//===- SplitKV.cpp - Split-KV tiling of attention -----------------------------===//
//
// Emits two parallel loops (flash-decoding; Dao et al. 2023). The first computes partial states of the query heads of a
// KV head over one chunk of keys, the second merges the states of all chunks. With a single chunk the first loop
// finalizes the results, and the second has trip count zero.
//
//===----------------------------------------------------------------------===//
#include "SplitKV.h"
#include "Sink.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "saccade/Dialect/Attn/Analysis/Stability.h"
#include "saccade/Tiling/Passes.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// Accumulator columns are rounded up to the widest register (16 lanes), so that no partial register is needed, and
/// rows to blocks.
static constexpr int64_t columnBlock = 16, rowBlock = 4;

namespace {

/// A rank-reducing slice of a tensor; `dropped` dimensions have size 1.
struct Slice {
  SmallVector<OpFoldResult> offsets, sizes, strides;
  llvm::SmallBitVector dropped;

  void add(OpFoldResult offset, OpFoldResult size, OpFoldResult stride, bool isDropped = false) {
    offsets.push_back(offset);
    sizes.push_back(size);
    strides.push_back(stride);
    dropped.push_back(isDropped);
  }
};

/// The heads [first, first + count) of one batch. If `count` is null, the single head `first`, whose dimension is
/// dropped.
struct Heads {
  Value batch, first, count;
};

struct SplitKVTiler {
  SplitKVTiler(OpBuilder &b, AttentionOp op);

  OpBuilder &b;
  AttentionOp op;
  Location loc;
  SplitKVAttr splitKV;
  FloatType type;
  OpFoldResult zero, one;
  int64_t columns;
  Value at[4];
  Value batches, heads, queries, keys, kvHeads;
  Value group;                       ///< query heads per KV head
  Value tilesPerGroup, headsPerTile; ///< tasks per KV head and chunk, query heads per task
  Value rows;                        ///< of the state of a task
  Value firstChunk, chunks, single;  ///< absolute index of the first chunk, number of chunks, whether it is one

  Value constant(int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }
  Value add(Value x, Value y) { return b.createOrFold<arith::AddIOp>(loc, x, y); }
  Value sub(Value x, Value y) { return b.createOrFold<arith::SubIOp>(loc, x, y); }
  Value mul(Value x, Value y) { return b.createOrFold<arith::MulIOp>(loc, x, y); }
  Value min(Value x, Value y) { return b.createOrFold<arith::MinSIOp>(loc, x, y); }
  Value max(Value x, Value y) { return b.createOrFold<arith::MaxSIOp>(loc, x, y); }
  Value div(Value x, Value y) { return b.createOrFold<arith::DivUIOp>(loc, x, y); }
  Value ceilDiv(Value x, Value y) { return div(add(x, sub(y, constant(1))), y); }
  Value select(Value condition, Value x, Value y) { return b.createOrFold<arith::SelectOp>(loc, condition, x, y); }
  OpFoldResult fold(Value value) { return getAsOpFoldResult(value); }
  OpFoldResult size(Value value, DimsAttr dims, Dim dim) { return getDimSize(b, loc, value, dims, dim); }
  Value sizeOf(Value value, DimsAttr dims, Dim dim) {
    return getValueOrCreateConstantIndexOp(b, loc, size(value, dims, dim));
  }
  Value lengthOf(Value length, Value batch, Value extent);
  Value extract(Value value, const Slice &slice);
  Value operand(Value value, DimsAttr dims, Heads heads, Value position, Value positions);
  Slice resultSlice(unsigned result, Heads heads);
  Slice stateSlice(unsigned component, ArrayRef<Value> indices);
  SmallVector<Value> emptyState(ArrayRef<Value> extents, Value rows);
  Value filled(Value destination, double value);
  SmallVector<Value> filledState(ValueRange destinations);
  void addSinks(SmallVectorImpl<Value> &state, Heads heads, Value chunk);
  Value validQueries(Value batch);
  SmallVector<Value> finalize(ValueRange state, Heads heads, Value isActive, ValueRange destinations);
  void insertAll(scf::ForallOp loop, ValueRange values, ArrayRef<Slice> slices);
  SmallVector<Value> accumulateChunk(ValueRange state, Value batch, Value kvHead, Value chunk, Heads heads);
  Heads headsOfTask(Value batch, Value kvHead, Value tile);
  void fillChunkLoop(scf::ForallOp loop);
  void fillMergeLoop(scf::ForallOp loop, ValueRange states);
};

SplitKVTiler::SplitKVTiler(OpBuilder &b, AttentionOp op)
    : b(b), op(op), loc(op.getLoc()), splitKV(op.getSplitKvAttr()) {
  type = cast<ScoringOpInterface>(op.getOperation()).getScoreType();
  zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  int64_t valueDepth = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth);
  columns = llvm::alignTo(std::max<int64_t>(valueDepth, 1), columnBlock);
  for (unsigned i = 0; i < 4; ++i)
    at[i] = op.getAt().empty() ? constant(0) : Value(op.getAt()[i]);
  batches = sizeOf(op.getQuery(), op.getQueryDims(), Dim::Batch);
  heads = sizeOf(op.getQuery(), op.getQueryDims(), Dim::Head);
  queries = sizeOf(op.getQuery(), op.getQueryDims(), Dim::Seq);
  keys = sizeOf(op.getKey(), op.getKeyDims(), Dim::Seq);
  kvHeads = sizeOf(op.getKey(), op.getKeyDims(), Dim::Head);
  // Without heads no task runs, but divisors must be nonzero.
  Value unit = constant(1);
  group = max(unit, div(heads, max(unit, kvHeads)));
  // Distribute the heads evenly over the smallest number of tasks whose rows suffice, to minimize reads of the keys.
  Value maxHeads = max(unit, div(constant(splitKV.getRows()), max(unit, queries)));
  tilesPerGroup = ceilDiv(group, maxHeads);
  headsPerTile = ceilDiv(group, tilesPerGroup);
  rows = mul(ceilDiv(mul(headsPerTile, queries), constant(rowBlock)), constant(rowBlock));
  Value chunkSize = constant(splitKV.getCols());
  firstChunk = b.createOrFold<arith::FloorDivSIOp>(loc, at[3], chunkSize);
  chunks = max(unit, ceilDiv(add(sub(at[3], mul(firstChunk, chunkSize)), keys), chunkSize));
  single = b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::eq, chunks, unit);
}

/// The end position of `batch` given by a length operand, not clamped; `extent` without one.
Value SplitKVTiler::lengthOf(Value length, Value batch, Value extent) {
  if (!length)
    return extent;
  if (isa<RankedTensorType>(length.getType()))
    length = tensor::ExtractOp::create(b, loc, length, batch);
  if (!length.getType().isIndex())
    length = arith::IndexCastOp::create(b, loc, b.getIndexType(), length);
  return length;
}

//===----------------------------------------------------------------------===//
// Slices of tensors
//===----------------------------------------------------------------------===//

Value SplitKVTiler::extract(Value value, const Slice &slice) {
  SmallVector<int64_t> shape;
  for (auto [i, size] : llvm::enumerate(slice.sizes))
    if (!slice.dropped.test(i))
      shape.push_back(getConstantIntValue(size).value_or(ShapedType::kDynamic));
  auto result = RankedTensorType::get(shape, getElementTypeOrSelf(value));
  return tensor::ExtractSliceOp::create(b, loc, result, value, slice.offsets, slice.sizes, slice.strides);
}

/// The positions [position, position + positions) of an operand.
Value SplitKVTiler::operand(Value value, DimsAttr dims, Heads heads, Value position, Value positions) {
  Slice slice;
  for (Dim dim : dims.getDims()) {
    if (dim == Dim::Batch)
      slice.add(heads.batch, one, one, /*isDropped=*/true);
    else if (dim == Dim::Head)
      slice.add(heads.first, heads.count ? fold(heads.count) : one, one, /*isDropped=*/!heads.count);
    else if (dim == Dim::Seq)
      slice.add(fold(position), fold(positions), one);
    else
      slice.add(zero, size(value, dims, dim), one);
  }
  return extract(value, slice);
}

/// `dims` without the dimensions `dropped`.
static DimsAttr namesWithout(DimsAttr dims, ArrayRef<Dim> dropped) {
  SmallVector<Dim> names =
      llvm::filter_to_vector(dims.getDims(), [&](Dim d) { return !llvm::is_contained(dropped, d); });
  return DimsAttr::get(dims.getContext(), ArrayRef<Dim>(names));
}

/// The slice of all queries of `heads` in the output (result 0) or the log-sum-exp (1). With a null batch, the tensor
/// has no batch dimension.
Slice SplitKVTiler::resultSlice(unsigned result, Heads heads) {
  SmallVector<Dim> dims(op.getOutputDims().getDims());
  if (result == 1) {
    // The dimensions of the log-sum-exp are b, h, s in this order.
    llvm::sort(dims, [](Dim x, Dim y) { return unsigned(x) < unsigned(y); });
    dims.pop_back();
  }
  Slice slice;
  for (Dim dim : dims) {
    if (dim == Dim::Batch && heads.batch)
      slice.add(heads.batch, one, one, /*isDropped=*/true);
    else if (dim == Dim::Head)
      slice.add(heads.first, heads.count ? fold(heads.count) : one, one, /*isDropped=*/!heads.count);
    else if (dim == Dim::Seq)
      slice.add(zero, fold(queries), one);
    else if (dim == Dim::Depth)
      slice.add(zero, size(op.getValue(), op.getValueDims(), Dim::Depth), one);
  }
  return slice;
}

/// The slice of one task in the accumulators (0), maxima (1) or sums (2) of all tasks. `indices` are batch, KV head,
/// tile and chunk.
Slice SplitKVTiler::stateSlice(unsigned component, ArrayRef<Value> indices) {
  Slice result;
  for (Value index : indices)
    result.add(index, one, one, /*isDropped=*/true);
  result.add(zero, fold(rows), one);
  if (component == 0)
    result.add(zero, b.getIndexAttr(columns), one);
  return result;
}

SmallVector<Value> SplitKVTiler::emptyState(ArrayRef<Value> extents, Value rows) {
  SmallVector<OpFoldResult> sizes = llvm::map_to_vector(extents, [&](Value extent) { return fold(extent); });
  sizes.push_back(fold(rows));
  SmallVector<OpFoldResult> wide = sizes;
  wide.push_back(b.getIndexAttr(columns));
  return {tensor::EmptyOp::create(b, loc, wide, type), tensor::EmptyOp::create(b, loc, sizes, type),
          tensor::EmptyOp::create(b, loc, sizes, type)};
}

Value SplitKVTiler::filled(Value destination, double value) {
  Value scalar = arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value));
  return linalg::FillOp::create(b, loc, scalar, destination).getResult(0);
}

/// The state without keys.
SmallVector<Value> SplitKVTiler::filledState(ValueRange destinations) {
  return {filled(destinations[0], 0.0), filled(destinations[1], -std::numeric_limits<double>::infinity()),
          filled(destinations[2], 0.0)};
}

/// The number of queries of `batch` within its length.
Value SplitKVTiler::validQueries(Value batch) {
  Value end = lengthOf(op.getQLen(), batch, add(at[2], queries));
  return max(constant(0), min(queries, sub(end, at[2])));
}

/// Adds the sinks to the state of the valid rows of `heads`, in the first chunk.
void SplitKVTiler::addSinks(SmallVectorImpl<Value> &state, Heads heads, Value chunk) {
  if (!op.getSink())
    return;
  Value isFirst = b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::eq, chunk, constant(0));
  Value count = validQueries(heads.batch);
  auto body = [&](OpBuilder &nested, Location, Value head, ValueRange carried) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(nested.getInsertionBlock(), nested.getInsertionPoint());
    SinkStart start = emitSinkStart(b, loc, op.getSink(), add(heads.first, head), type);
    Slice rowsOfHead;
    rowsOfHead.add(head, fold(count), fold(heads.count));
    SmallVector<Value> next;
    for (auto [whole, value] : {std::pair(carried[0], start.max), std::pair(carried[1], start.sum)}) {
      Value filled = linalg::FillOp::create(b, loc, value, extract(whole, rowsOfHead)).getResult(0);
      next.push_back(tensor::InsertSliceOp::create(b, loc, filled, whole, rowsOfHead.offsets, rowsOfHead.sizes,
                                                   rowsOfHead.strides));
    }
    scf::YieldOp::create(b, loc, next);
  };
  auto loop = scf::ForOp::create(b, loc, constant(0), select(isFirst, heads.count, constant(0)), constant(1),
                                 ValueRange{state[1], state[2]}, body);
  state[1] = loop.getResult(0), state[2] = loop.getResult(1);
}

//===----------------------------------------------------------------------===//
// Tasks
//===----------------------------------------------------------------------===//

Heads SplitKVTiler::headsOfTask(Value batch, Value kvHead, Value tile) {
  Value first = mul(tile, headsPerTile);
  return {batch, add(mul(kvHead, group), first), min(headsPerTile, sub(group, first))};
}

/// Finalizes the results of some heads into `destinations`. Row i · heads.count + h of the state is query i of head h.
/// If `isActive` (null means true) is false, returns `destinations` unchanged.
SmallVector<Value> SplitKVTiler::finalize(ValueRange state, Heads heads, Value isActive, ValueRange destinations) {
  Value end = isActive ? select(isActive, heads.count, constant(0)) : heads.count;
  auto body = [&](OpBuilder &nested, Location, Value head, ValueRange carried) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(nested.getInsertionBlock(), nested.getInsertionPoint());
    SmallVector<Value> rowsOfHead, outputs;
    for (auto [i, whole] : llvm::enumerate(state)) {
      Slice slice;
      slice.add(head, fold(queries), fold(heads.count));
      if (i == 0)
        slice.add(zero, b.getIndexAttr(columns), one);
      rowsOfHead.push_back(extract(whole, slice));
    }
    SmallVector<Slice> slices;
    for (auto [i, destination] : llvm::enumerate(carried)) {
      slices.push_back(resultSlice(i, {Value(), head, Value()}));
      outputs.push_back(extract(destination, slices.back()));
    }
    auto done = FinalizeOp::create(b, loc, ValueRange(outputs).getTypes(), rowsOfHead[0], rowsOfHead[1], rowsOfHead[2],
                                   /*others=*/ValueRange(), outputs[0], op.getLse() ? outputs[1] : Value(),
                                   /*other_outputs=*/ValueRange(),
                                   namesWithout(op.getOutputDims(), {Dim::Batch, Dim::Head}), ScheduleAttr());
    SmallVector<Value> next;
    for (auto [result, destination, slice] : llvm::zip_equal(done->getResults(), carried, slices))
      next.push_back(
          tensor::InsertSliceOp::create(b, loc, result, destination, slice.offsets, slice.sizes, slice.strides));
    scf::YieldOp::create(b, loc, next);
  };
  return llvm::to_vector(
      ValueRange(scf::ForOp::create(b, loc, constant(0), end, constant(1), destinations, body).getResults()));
}

void SplitKVTiler::insertAll(scf::ForallOp loop, ValueRange values, ArrayRef<Slice> slices) {
  b.setInsertionPointToStart(loop.getTerminator().getBody());
  for (auto [value, all, slice] : llvm::zip_equal(values, loop.getRegionIterArgs(), slices))
    tensor::ParallelInsertSliceOp::create(b, loc, value, all, slice.offsets, slice.sizes, slice.strides);
}

/// Accumulates one chunk of keys into the state of the rows of some heads.
SmallVector<Value> SplitKVTiler::accumulateChunk(ValueRange state, Value batch, Value kvHead, Value chunk,
                                                 Heads heads) {
  Value queryLength = lengthOf(op.getQLen(), batch, add(at[2], queries));
  Value keyLength = lengthOf(op.getKvLen(), batch, add(at[3], keys));
  Value queryCount = validQueries(batch);
  Value chunkSize = constant(splitKV.getCols());
  Value begin = sub(mul(add(firstChunk, chunk), chunkSize), at[3]);
  Value end = min(min(keys, sub(keyLength, at[3])), add(begin, chunkSize));
  Value start = min(max(constant(0), begin), keys);
  Value count = max(constant(0), sub(end, start));

  Heads ofKeys{batch, kvHead, Value()};
  SmallVector<Value> tileAt = {add(at[0], batch), add(at[1], heads.first), at[2], add(at[3], start)};
  auto tile = AccumulateOp::create(
      b, loc, TypeRange(state), operand(op.getQuery(), op.getQueryDims(), heads, constant(0), queryCount),
      operand(op.getKey(), op.getKeyDims(), ofKeys, start, count),
      operand(op.getValue(), op.getValueDims(), ofKeys, start, count), op.getCaptures(), queryLength, keyLength,
      op.getScaleValue(), tileAt, state[0], state[1], state[2], /*tallies=*/ValueRange(), /*row_max=*/Value(),
      /*argmax=*/Value(), namesWithout(op.getQueryDims(), {Dim::Batch}),
      namesWithout(op.getKeyDims(), {Dim::Batch, Dim::Head}), namesWithout(op.getValueDims(), {Dim::Batch, Dim::Head}),
      op.getScaleAttr(), /*final=*/false, ScheduleAttr::get(op.getContext(), splitKV.getRows(), splitKV.getCols(), 0),
      /*unpacked=*/true, /*tally_regionsCount=*/0);
  if (getFiniteMax(op) == FiniteMax::EveryStep)
    tile->setAttr(finiteMaxAttr, b.getUnitAttr());
  cloneRegions(op, tile);
  return llvm::to_vector(ValueRange(tile->getResults()));
}

/// The body of the first loop, over batch, KV head, chunk and tile. Tasks that read the same chunk are consecutive.
void SplitKVTiler::fillChunkLoop(scf::ForallOp loop) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value batch = loop.getInductionVar(0), kvHead = loop.getInductionVar(1);
  Value chunk = loop.getInductionVar(2), tile = loop.getInductionVar(3);
  Heads heads = headsOfTask(batch, kvHead, tile);
  SmallVector<Slice> slices;
  SmallVector<Value> state, outputs;
  for (auto [i, all] : llvm::enumerate(loop.getRegionIterArgs())) {
    slices.push_back(i < 3 ? stateSlice(i, {batch, kvHead, tile, chunk}) : resultSlice(i - 3, heads));
    (i < 3 ? state : outputs).push_back(extract(all, slices.back()));
  }
  state = filledState(state);
  addSinks(state, heads, chunk);
  state = accumulateChunk(state, batch, kvHead, chunk, heads);
  outputs = finalize(state, heads, single, outputs);
  SmallVector<Value> results = llvm::to_vector(llvm::concat<Value>(state, outputs));
  insertAll(loop, results, slices);
}

/// The body of the second loop, over batch, KV head and tile.
void SplitKVTiler::fillMergeLoop(scf::ForallOp loop, ValueRange states) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value batch = loop.getInductionVar(0), kvHead = loop.getInductionVar(1), tile = loop.getInductionVar(2);
  SmallVector<Value> initial;
  // Temporaries of a task have a static size.
  SmallVector<Value> memory = filledState(emptyState({}, constant(llvm::alignTo(splitKV.getRows(), rowBlock))));
  for (auto [i, whole] : llvm::enumerate(memory))
    initial.push_back(extract(whole, stateSlice(i, {})));
  auto merge = [&](OpBuilder &nested, Location, Value chunk, ValueRange carried) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(nested.getInsertionBlock(), nested.getInsertionPoint());
    SmallVector<Value> other;
    for (auto [i, all] : llvm::enumerate(states))
      other.push_back(extract(all, stateSlice(i, {batch, kvHead, tile, chunk})));
    auto merged = MergeOp::create(b, loc, ValueRange(carried).getTypes(), other[0], other[1], other[2], carried[0],
                                  carried[1], carried[2]);
    scf::YieldOp::create(b, loc, merged->getResults());
  };
  auto state = scf::ForOp::create(b, loc, constant(0), chunks, constant(1), initial, merge);

  Heads heads = headsOfTask(batch, kvHead, tile);
  SmallVector<Slice> slices;
  SmallVector<Value> outputs;
  for (auto [i, all] : llvm::enumerate(loop.getRegionIterArgs())) {
    slices.push_back(resultSlice(i, heads));
    outputs.push_back(extract(all, slices.back()));
  }
  insertAll(loop, finalize(state.getResults(), heads, /*isActive=*/Value(), outputs), slices);
}

} // namespace

bool saccade::canSplitKV(AttentionOp op) {
  return op.getWeight().empty() && op.getTallies().empty() && !op.getRowMax() && !op.getArgmax();
}

Value saccade::usesSplitKV(OpBuilder &b, AttentionOp op) {
  Location loc = op.getLoc();
  Value queries =
      getValueOrCreateConstantIndexOp(b, loc, getDimSize(b, loc, op.getQuery(), op.getQueryDims(), Dim::Seq));
  Value limit = arith::ConstantIndexOp::create(b, loc, op.getSplitKvAttr().getQueries());
  return b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::sle, queries, limit);
}

SmallVector<Value> saccade::tileSplitKV(OpBuilder &b, AttentionOp op, Value isSplitKV, ValueRange inits) {
  SplitKVTiler tiler(b, op);
  Location loc = op.getLoc();
  Value none = tiler.constant(0), batches = tiler.select(isSplitKV, tiler.batches, none);
  SmallVector<Value> outs = tiler.emptyState({batches, tiler.kvHeads, tiler.tilesPerGroup, tiler.chunks}, tiler.rows);
  llvm::append_range(outs, inits);
  auto loopOver = [&](ArrayRef<Value> extents, ValueRange outs) {
    SmallVector<OpFoldResult> bounds = llvm::map_to_vector(extents, [&](Value v) { return tiler.fold(v); });
    return scf::ForallOp::create(b, loc, bounds, outs, std::nullopt);
  };
  auto chunks = loopOver({batches, tiler.kvHeads, tiler.chunks, tiler.tilesPerGroup}, outs);
  tiler.fillChunkLoop(chunks);
  Value merged = tiler.select(tiler.single, none, batches);
  auto merge = loopOver({merged, tiler.kvHeads, tiler.tilesPerGroup}, chunks.getResults().drop_front(3));
  tiler.fillMergeLoop(merge, chunks.getResults().take_front(3));
  return SmallVector<Value>(merge.getResults());
}
