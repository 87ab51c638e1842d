//===- SplitKV.cpp - Attention that reads keys and values once -------------===//
//
// Two parallel loops. The first computes the state of the query heads of a key head over one chunk of keys; the second
// merges the states of all chunks. Where there is but one chunk the first loop finishes it, and the second is empty.
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

/// Accumulator columns come in multiples of the widest register, so that no code needs a partial one, and rows in blocks.
static constexpr int64_t columnBlock = 16, rowBlock = 4;

namespace {

/// A part of a tensor; `dropped` dimensions have a size of 1 and are left out.
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

/// The heads [first, first + count) of one batch, or one of them, without that dimension, where there is no count.
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
  Value batches, heads, queries, keys, keyHeads;
  Value group;                      ///< query heads of a key head
  Value tilesPerGroup, headsPerTile;  ///< tasks that share a key head, query heads of one of them
  Value rows;                       ///< of a task's state
  Value firstChunk, chunks, single; ///< the first chunk's absolute number, how many, whether it is one

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
  Value extract(Value value, const Slice &part);
  Value operand(Value value, DimsAttr dims, Heads heads, Value position, Value positions);
  Slice resultSlice(unsigned result, Heads heads);
  Slice stateSlice(unsigned part, ArrayRef<Value> indices);
  SmallVector<Value> emptyState(ArrayRef<Value> extents, Value rows);
  Value filled(Value destination, double value);
  SmallVector<Value> filledState(ValueRange destinations);
  void addSinks(SmallVectorImpl<Value> &state, Heads heads, Value chunk);
  Value validQueries(Value batch);
  SmallVector<Value> finalize(ValueRange state, Heads heads, Value isActive, ValueRange destinations);
  void insertAll(scf::ForallOp loop, ValueRange values, ArrayRef<Slice> parts);
  SmallVector<Value> accumulateChunk(ValueRange state, Value batch, Value keyHead, Value chunk, Heads heads);
  Heads headsOfTask(Value batch, Value keyHead, Value tile);
  void fillChunkLoop(scf::ForallOp loop);
  void fillMergeLoop(scf::ForallOp loop, ValueRange states);
};

SplitKVTiler::SplitKVTiler(OpBuilder &b, AttentionOp op) : b(b), op(op), loc(op.getLoc()), splitKV(op.getSplitKvAttr()) {
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
  keyHeads = sizeOf(op.getKey(), op.getKeyDims(), Dim::Head);
  // Where there are no heads at all nothing runs, but divisors must still be defined.
  Value least = constant(1);
  group = max(least, div(heads, max(least, keyHeads)));
  // As many heads a task as its rows hold, evenly: the fewest tasks that read the same keys.
  Value most = max(least, div(constant(splitKV.getRows()), max(least, queries)));
  tilesPerGroup = ceilDiv(group, most);
  headsPerTile = ceilDiv(group, tilesPerGroup);
  rows = mul(ceilDiv(mul(headsPerTile, queries), constant(rowBlock)), constant(rowBlock));
  Value chunkSize = constant(splitKV.getCols());
  firstChunk = b.createOrFold<arith::FloorDivSIOp>(loc, at[3], chunkSize);
  chunks = max(least, ceilDiv(add(sub(at[3], mul(firstChunk, chunkSize)), keys), chunkSize));
  single = b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::eq, chunks, least);
}

/// A length operand as the index where `batch` ends, not clamped; `extent` without one.
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
// Parts of tensors
//===----------------------------------------------------------------------===//

Value SplitKVTiler::extract(Value value, const Slice &part) {
  SmallVector<int64_t> shape;
  for (auto [i, size] : llvm::enumerate(part.sizes))
    if (!part.dropped.test(i))
      shape.push_back(getConstantIntValue(size).value_or(ShapedType::kDynamic));
  auto result = RankedTensorType::get(shape, getElementTypeOrSelf(value));
  return tensor::ExtractSliceOp::create(b, loc, result, value, part.offsets, part.sizes, part.strides);
}

/// Some positions of an operand.
Value SplitKVTiler::operand(Value value, DimsAttr dims, Heads heads, Value position, Value positions) {
  Slice part;
  for (Dim dim : dims.getDims()) {
    if (dim == Dim::Batch)
      part.add(heads.batch, one, one, /*isDropped=*/true);
    else if (dim == Dim::Head)
      part.add(heads.first, heads.count ? fold(heads.count) : one, one, /*isDropped=*/!heads.count);
    else if (dim == Dim::Seq)
      part.add(fold(position), fold(positions), one);
    else
      part.add(zero, size(value, dims, dim), one);
  }
  return extract(value, part);
}

/// The names of dimensions without some of them.
static DimsAttr namesWithout(DimsAttr dims, ArrayRef<Dim> dropped) {
  SmallVector<Dim> names =
      llvm::filter_to_vector(dims.getDims(), [&](Dim d) { return !llvm::is_contained(dropped, d); });
  return DimsAttr::get(dims.getContext(), ArrayRef<Dim>(names));
}

/// All queries of `heads` in the output (result 0) or the log-sum-exp; a null batch stands for one that is dropped already.
Slice SplitKVTiler::resultSlice(unsigned result, Heads heads) {
  SmallVector<Dim> dims(op.getOutputDims().getDims());
  if (result == 1) {
    // Its dimensions are b, h, s, whatever the output's order is.
    llvm::sort(dims, [](Dim x, Dim y) { return unsigned(x) < unsigned(y); });
    dims.pop_back();
  }
  Slice part;
  for (Dim dim : dims) {
    if (dim == Dim::Batch && heads.batch)
      part.add(heads.batch, one, one, /*isDropped=*/true);
    else if (dim == Dim::Head)
      part.add(heads.first, heads.count ? fold(heads.count) : one, one, /*isDropped=*/!heads.count);
    else if (dim == Dim::Seq)
      part.add(zero, fold(queries), one);
    else if (dim == Dim::Depth)
      part.add(zero, size(op.getValue(), op.getValueDims(), Dim::Depth), one);
  }
  return part;
}

/// Of the accumulators (0), maxima (1) or sums (2) of all tasks that of one; `indices` are batch, key head, tile and chunk.
Slice SplitKVTiler::stateSlice(unsigned part, ArrayRef<Value> indices) {
  Slice result;
  for (Value index : indices)
    result.add(index, one, one, /*isDropped=*/true);
  result.add(zero, fold(rows), one);
  if (part == 0)
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

/// The state of rows that have seen no key.
SmallVector<Value> SplitKVTiler::filledState(ValueRange destinations) {
  return {filled(destinations[0], 0.0), filled(destinations[1], -std::numeric_limits<double>::infinity()),
          filled(destinations[2], 0.0)};
}

/// How many queries of `batch` are inside of its length.
Value SplitKVTiler::validQueries(Value batch) {
  Value end = lengthOf(op.getQLen(), batch, add(at[2], queries));
  return max(constant(0), min(queries, sub(end, at[2])));
}

/// Lets the rows of `heads` that count begin with their sinks, in the first chunk.
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
    for (auto [part, value] : {std::pair(carried[0], start.max), std::pair(carried[1], start.sum)}) {
      Value filled = linalg::FillOp::create(b, loc, value, extract(part, rowsOfHead)).getResult(0);
      next.push_back(tensor::InsertSliceOp::create(b, loc, filled, part, rowsOfHead.offsets, rowsOfHead.sizes,
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

Heads SplitKVTiler::headsOfTask(Value batch, Value keyHead, Value tile) {
  Value first = mul(tile, headsPerTile);
  return {batch, add(mul(keyHead, group), first), min(headsPerTile, sub(group, first))};
}

/// Writes the results of some heads, whose state has query i of head h in row i · heads.count + h, into `destinations`;
/// where `isActive` (null for always) does not hold these stay as they are.
SmallVector<Value> SplitKVTiler::finalize(ValueRange state, Heads heads, Value isActive, ValueRange destinations) {
  Value end = isActive ? select(isActive, heads.count, constant(0)) : heads.count;
  auto body = [&](OpBuilder &nested, Location, Value head, ValueRange carried) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(nested.getInsertionBlock(), nested.getInsertionPoint());
    SmallVector<Value> rowsOfHead, outputs;
    for (auto [i, whole] : llvm::enumerate(state)) {
      Slice part;
      part.add(head, fold(queries), fold(heads.count));
      if (i == 0)
        part.add(zero, b.getIndexAttr(columns), one);
      rowsOfHead.push_back(extract(whole, part));
    }
    SmallVector<Slice> parts;
    for (auto [i, destination] : llvm::enumerate(carried)) {
      parts.push_back(resultSlice(i, {Value(), head, Value()}));
      outputs.push_back(extract(destination, parts.back()));
    }
    auto done = FinalizeOp::create(b, loc, ValueRange(outputs).getTypes(), rowsOfHead[0], rowsOfHead[1], rowsOfHead[2],
                                   /*others=*/ValueRange(), outputs[0], op.getLse() ? outputs[1] : Value(),
                                   /*other_outputs=*/ValueRange(), namesWithout(op.getOutputDims(), {Dim::Batch, Dim::Head}), ScheduleAttr());
    SmallVector<Value> next;
    for (auto [result, destination, part] : llvm::zip_equal(done->getResults(), carried, parts))
      next.push_back(
          tensor::InsertSliceOp::create(b, loc, result, destination, part.offsets, part.sizes, part.strides));
    scf::YieldOp::create(b, loc, next);
  };
  return llvm::to_vector(
      ValueRange(scf::ForOp::create(b, loc, constant(0), end, constant(1), destinations, body).getResults()));
}

void SplitKVTiler::insertAll(scf::ForallOp loop, ValueRange values, ArrayRef<Slice> parts) {
  b.setInsertionPointToStart(loop.getTerminator().getBody());
  for (auto [value, all, part] : llvm::zip_equal(values, loop.getRegionIterArgs(), parts))
    tensor::ParallelInsertSliceOp::create(b, loc, value, all, part.offsets, part.sizes, part.strides);
}

/// Folds one chunk of keys into the state of the rows of some heads.
SmallVector<Value> SplitKVTiler::accumulateChunk(ValueRange state, Value batch, Value keyHead, Value chunk, Heads heads) {
  Value queryLength = lengthOf(op.getQLen(), batch, add(at[2], queries));
  Value keyLength = lengthOf(op.getKvLen(), batch, add(at[3], keys));
  Value queryCount = validQueries(batch);
  Value chunkSize = constant(splitKV.getCols());
  Value begin = sub(mul(add(firstChunk, chunk), chunkSize), at[3]);
  Value end = min(min(keys, sub(keyLength, at[3])), add(begin, chunkSize));
  Value start = min(max(constant(0), begin), keys);
  Value count = max(constant(0), sub(end, start));

  Heads ofKeys{batch, keyHead, Value()};
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

/// The body of the first loop, over batch, key head, chunk and tile: tasks of one chunk follow each other.
void SplitKVTiler::fillChunkLoop(scf::ForallOp loop) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value batch = loop.getInductionVar(0), keyHead = loop.getInductionVar(1);
  Value chunk = loop.getInductionVar(2), tile = loop.getInductionVar(3);
  Heads heads = headsOfTask(batch, keyHead, tile);
  SmallVector<Slice> parts;
  SmallVector<Value> state, outputs;
  for (auto [i, all] : llvm::enumerate(loop.getRegionIterArgs())) {
    parts.push_back(i < 3 ? stateSlice(i, {batch, keyHead, tile, chunk}) : resultSlice(i - 3, heads));
    (i < 3 ? state : outputs).push_back(extract(all, parts.back()));
  }
  state = filledState(state);
  addSinks(state, heads, chunk);
  state = accumulateChunk(state, batch, keyHead, chunk, heads);
  outputs = finalize(state, heads, single, outputs);
  SmallVector<Value> results = llvm::to_vector(llvm::concat<Value>(state, outputs));
  insertAll(loop, results, parts);
}

/// The body of the second loop, over batch, key head and tile.
void SplitKVTiler::fillMergeLoop(scf::ForallOp loop, ValueRange states) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value batch = loop.getInductionVar(0), keyHead = loop.getInductionVar(1), tile = loop.getInductionVar(2);
  SmallVector<Value> initial;
  // A task's memory is static.
  SmallVector<Value> memory = filledState(emptyState({}, constant(llvm::alignTo(splitKV.getRows(), rowBlock))));
  for (auto [i, whole] : llvm::enumerate(memory))
    initial.push_back(extract(whole, stateSlice(i, {})));
  auto merge = [&](OpBuilder &nested, Location, Value chunk, ValueRange carried) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(nested.getInsertionBlock(), nested.getInsertionPoint());
    SmallVector<Value> other;
    for (auto [i, all] : llvm::enumerate(states))
      other.push_back(extract(all, stateSlice(i, {batch, keyHead, tile, chunk})));
    auto joined = MergeOp::create(b, loc, ValueRange(carried).getTypes(), other[0], other[1], other[2], carried[0],
                                  carried[1], carried[2]);
    scf::YieldOp::create(b, loc, joined->getResults());
  };
  auto state = scf::ForOp::create(b, loc, constant(0), chunks, constant(1), initial, merge);

  Heads heads = headsOfTask(batch, keyHead, tile);
  SmallVector<Slice> parts;
  SmallVector<Value> outputs;
  for (auto [i, all] : llvm::enumerate(loop.getRegionIterArgs())) {
    parts.push_back(resultSlice(i, heads));
    outputs.push_back(extract(all, parts.back()));
  }
  insertAll(loop, finalize(state.getResults(), heads, /*isActive=*/Value(), outputs), parts);
}

} // namespace

bool saccade::canSplitKV(AttentionOp op) {
  return op.getWeight().empty() && op.getTallies().empty() && !op.getRowMax() && !op.getArgmax();
}

Value saccade::usesSplitKV(OpBuilder &b, AttentionOp op) {
  Location loc = op.getLoc();
  Value queries = getValueOrCreateConstantIndexOp(
      b, loc, getDimSize(b, loc, op.getQuery(), op.getQueryDims(), Dim::Seq));
  Value limit = arith::ConstantIndexOp::create(b, loc, op.getSplitKvAttr().getQueries());
  return b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::sle, queries, limit);
}

SmallVector<Value> saccade::tileSplitKV(OpBuilder &b, AttentionOp op, Value isSplitKV, ValueRange inits) {
  SplitKVTiler tiler(b, op);
  Location loc = op.getLoc();
  Value none = tiler.constant(0), batches = tiler.select(isSplitKV, tiler.batches, none);
  SmallVector<Value> outs =
      tiler.emptyState({batches, tiler.keyHeads, tiler.tilesPerGroup, tiler.chunks}, tiler.rows);
  llvm::append_range(outs, inits);
  auto loopOver = [&](ArrayRef<Value> extents, ValueRange outs) {
    SmallVector<OpFoldResult> bounds = llvm::map_to_vector(extents, [&](Value v) { return tiler.fold(v); });
    return scf::ForallOp::create(b, loc, bounds, outs, std::nullopt);
  };
  auto chunks = loopOver({batches, tiler.keyHeads, tiler.chunks, tiler.tilesPerGroup}, outs);
  tiler.fillChunkLoop(chunks);
  Value merged = tiler.select(tiler.single, none, batches);
  auto merge = loopOver({merged, tiler.keyHeads, tiler.tilesPerGroup}, chunks.getResults().drop_front(3));
  tiler.fillMergeLoop(merge, chunks.getResults().take_front(3));
  return SmallVector<Value>(merge.getResults());
}
