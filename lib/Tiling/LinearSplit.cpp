//===- LinearSplit.cpp - Linear attention with fewer heads than threads -------===//
//
// Columns of the state do not depend on each other, and what a chunk computes besides its columns depends on no other
// chunk. If there are fewer tasks than threads, a first loop prepares chunks in parallel, and the tasks of a second one
// carry a block of columns of the state through them. Both take a segment of positions at a time, so that the memory
// between them does not grow with the length.
//
//===----------------------------------------------------------------------===//
#include "LinearForwardTasks.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// Positions of a segment: what is prepared of them fits the L2 cache, and a launch costs little beside them.
static constexpr int64_t segmentPositions = 2048;

/// The number of tasks that keep all threads of a machine busy, so that no other form is compiled.
static constexpr int64_t manyTasks = 64;

//===----------------------------------------------------------------------===//
// The form of a call
//===----------------------------------------------------------------------===//

int64_t LinearForwardTasks::splitColumns() const {
  if (valueDepth % columnsInVectors != 0)
    return valueDepth;
  return valueDepth % columnsOfTask == 0 && valueDepth > columnsOfTask ? columnsOfTask : columnsInVectors;
}

bool LinearForwardTasks::hasSplitForm() {
  // A normalized output has one sum for all columns.
  if (!op.getCausal() || linear.getNormalize() || (!onDevice && heads == 1 && splitColumns() == valueDepth))
    return false;
  int64_t extent = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Seq),
          states = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Head);
  std::optional<int64_t> batches = getConstantIntValue(getBatches(b, op));
  bool areMany = !onDevice && batches && !ShapedType::isDynamic(states) && *batches * states / heads >= manyTasks;
  return !areMany && (heads > 1 || ShapedType::isDynamic(extent) || extent > stepPositions);
}

Value LinearForwardTasks::isSplit() {
  Value states = extentOf(op.getValue(), op.getValueDims(), Dim::Head);
  Value tasks = mul(asIndex(batches), div(states, heads));
  // The work of a task in `parts` of 1.2 times the time: rounds of parts on all threads must take less than one task.
  int64_t parts = heads > 1 ? heads : valueDepth / splitColumns();
  Value rounds = ceilDiv(mul(tasks, parts), ThreadsOp::create(b, loc, b.getIndexType()).getResult());
  Value isFew = isLess(mul(rounds, 6), index(parts * 5));
  if (heads > 1)
    return isFew;
  Value isLong = isLess(index(stepPositions), extentOf(op.getValue(), op.getValueDims(), Dim::Seq));
  return b.createOrFold<arith::AndIOp>(loc, isFew, isLong);
}

SmallVector<Value> LinearForwardTasks::emitForms(ValueRange inits) {
  if (onDevice) {
    blockColumns = splitColumns();
    return emitColumns(inits, initialColumns());
  }
  Value all = asIndex(batches), none = index(0), isFew = isSplit();
  auto select = [&](bool isOther) {
    batches = getAsOpFoldResult(isOther ? this->select(isFew, all, none) : this->select(isFew, none, all));
  };
  select(/*isOther=*/true);
  int64_t wasBlock = blockColumns;
  if (heads == 1)
    blockColumns = std::min(blockColumns, splitColumns());
  // Read before the final state is written, which may have the memory of the initial one.
  Value states = heads == 1 ? initialColumns() : Value();
  int64_t splitBlock = std::exchange(blockColumns, wasBlock);
  select(/*isOther=*/false);
  SmallVector<Value> results = emitHeads(inits);
  select(/*isOther=*/true);
  if (states) {
    blockColumns = splitBlock;
    return emitColumns(results, states);
  }
  // Each head is a task, which computes the products that heads share itself.
  int64_t shared = std::exchange(heads, 1);
  results = emitHeads(results);
  heads = shared;
  return results;
}

//===----------------------------------------------------------------------===//
// Prepared chunks
//===----------------------------------------------------------------------===//

SmallVector<LinearForwardTasks::Prepared::Part> LinearForwardTasks::Prepared::parts() {
  return {{&keys, false},    {&erase, false}, {&solved, false}, {&entering, false},
          {&leaving, false}, {&whole, false}, {&queries, true}, {&within, true}};
}

SmallVector<Value> LinearForwardTasks::Prepared::getValues() {
  SmallVector<Value> values;
  for (auto [value, ofQueries] : parts())
    if (*value)
      values.push_back(*value);
  return values;
}

LinearForwardTasks::Prepared LinearForwardTasks::Prepared::with(ValueRange values) const {
  Prepared other = *this;
  unsigned next = 0;
  for (auto [value, ofQueries] : other.parts())
    if (*value)
      *value = values[next++];
  return other;
}

int64_t LinearForwardTasks::preparedRows() {
  int64_t extent = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Seq);
  bool isKnown = !starts && !op.getKvLen() && !ShapedType::isDynamic(extent);
  return isKnown ? std::min(extent, rows) : rows;
}

LinearForwardTasks::Prepared LinearForwardTasks::emptyPrepared(Value chunks) {
  int64_t positions = preparedRows();
  Value batches = asIndex(this->batches);
  auto empty = [&](bool ofQueries, ArrayRef<int64_t> shape, Type element) -> Value {
    // The output has the larger number of heads.
    Value heads = extentOf(op.getValue(), op.getValueDims(), Dim::Head);
    if (ofQueries)
      heads = max(heads, extentOf(op.getQuery(), op.getQueryDims(), Dim::Head));
    SmallVector<OpFoldResult> sizes = getAsOpFoldResult(ValueRange{batches, heads, chunks});
    for (int64_t extent : shape)
      sizes.push_back(b.getIndexAttr(extent));
    return allocated(sizes, element);
  };
  Prepared all;
  all.within = empty(true, {positions, positions}, productType);
  if (op.hasDeltaRule())
    all.solved = empty(false, {positions, positions}, productType);
  if (!op.getDecay())
    return all;
  all.whole = op.hasMatrixDecay() ? empty(false, {depth}, type) : empty(false, {}, type);
  if (!op.hasMatrixDecay()) {
    all.entering = empty(false, {positions}, type);
    all.leaving = empty(false, {positions}, type);
    return all;
  }
  // Decayed by row.
  all.keys = empty(false, {positions, depth}, productType);
  all.queries = empty(true, {positions, depth}, productType);
  if (op.hasDeltaRule())
    all.erase = empty(false, {positions, depth}, productType);
  return all;
}

StructuredEmitter::Place LinearForwardTasks::placeOfPrepared(Value all, bool ofQueries, Value chunk, Value count) {
  Place place;
  place.offsets = getAsOpFoldResult(ValueRange{sequence, ofQueries ? mul(stateHead, group) : stateHead, chunk});
  place.sizes = {b.getIndexAttr(1), ofQueries ? getAsOpFoldResult(group) : b.getIndexAttr(1), getAsOpFoldResult(count)};
  for (int64_t extent : cast<ShapedType>(all.getType()).getShape().drop_front(3)) {
    place.offsets.push_back(b.getIndexAttr(0));
    place.sizes.push_back(b.getIndexAttr(extent));
  }
  return place;
}

/// The place of head `member` in a part at `placeOfPrepared`.
static StructuredEmitter::Place placeOfMember(OpBuilder &b, Value part, Value member) {
  StructuredEmitter::Place place;
  ArrayRef<int64_t> shape = cast<ShapedType>(part.getType()).getShape();
  place.offsets.assign(shape.size(), b.getIndexAttr(0));
  place.offsets[1] = getAsOpFoldResult(member);
  place.sizes.assign(3, b.getIndexAttr(1));
  for (int64_t extent : shape.drop_front(3))
    place.sizes.push_back(b.getIndexAttr(extent));
  return place;
}

static SmallVector<bool> keptOf(const StructuredEmitter::Place &place) {
  SmallVector<bool> isKept(place.sizes.size(), true);
  std::fill_n(isKept.begin(), 3, false);
  return isKept;
}

Value LinearForwardTasks::storePrepared(Value x, Value part, Value member, Value chunk) {
  Place place = placeOfMember(b, part, member);
  place.offsets[2] = getAsOpFoldResult(chunk);
  SmallVector<OpFoldResult> ones(place.sizes.size(), b.getIndexAttr(1));
  if (!isa<ShapedType>(x.getType())) {
    SmallVector<Value> at;
    for (OpFoldResult offset : place.offsets)
      at.push_back(asIndex(offset));
    return tensor::InsertOp::create(b, loc, x, part, at);
  }
  Value to = slice(part, place.offsets, place.sizes, keptOf(place));
  Value stored = linalg::CopyOp::create(b, loc, x, to).getResult(0);
  return tensor::InsertSliceOp::create(b, loc, stored, part, place.offsets, place.sizes, ones);
}

Value LinearForwardTasks::loadPrepared(Value all, Value head, Value chunk) {
  if (!all)
    return nullptr;
  if (cast<ShapedType>(all.getType()).getRank() == 3)
    return tensor::ExtractOp::create(b, loc, all, ValueRange{sequence, head, chunk});
  Place place = placeOfMember(b, all, head);
  place.offsets[0] = sequence, place.offsets[2] = chunk;
  return slice(all, place.offsets, place.sizes, keptOf(place));
}

LinearForwardTasks::Prepared LinearForwardTasks::prepareChunk(Value begin, Value number, Prepared parts) {
  Chunk chunk = loadChunk(begin);
  auto store = [&](Value x, Value part) { return part ? storePrepared(x, part, index(0), number) : Value(); };
  // First, because the decays that leave the chunk take memory until then.
  if (parts.keys)
    parts.keys = store(keysToWrite(chunk), parts.keys);
  multiplyTogether(chunk);
  Writing writing = writingOf(chunk);
  parts.erase = store(writing.erase, parts.erase);
  parts.solved = store(writing.solved, parts.solved);
  parts.entering = store(chunk.decay.entering, parts.entering);
  parts.leaving = store(chunk.decay.leaving, parts.leaving);
  parts.whole = store(chunk.decay.whole, parts.whole);
  SmallVector<Value> ofQueries = {parts.within};
  if (parts.queries)
    ofQueries.push_back(parts.queries);
  ofQueries = overQueryHeads(ofQueries, [&](Value head, Value member, ValueRange before) {
    Reading reading = readingOf(head, begin, &chunk, /*sum=*/Value());
    SmallVector<Value> next = {storePrepared(reading.within, before[0], member, number)};
    if (parts.queries)
      next.push_back(storePrepared(reading.entering, before[1], member, number));
    return next;
  });
  parts.within = ofQueries[0];
  parts.queries = parts.queries ? ofQueries[1] : Value();
  return parts;
}

LinearForwardTasks::Prepared LinearForwardTasks::prepareSegment(Value first, Value chunks, Prepared all) {
  auto places = [&]() {
    SmallVector<Place> found;
    Value chunk = mul(partOfTask, chunksOfTask());
    for (auto [value, ofQueries] : all.parts())
      if (*value)
        found.push_back(placeOfPrepared(*value, ofQueries, chunk, min(sub(chunks, chunk), index(chunksOfTask()))));
    return found;
  };
  auto body = [&](ValueRange parts) {
    Value begun = add(first, mul(partOfTask, chunksOfTask() * rows));
    // A short sequence is computed position by position.
    Value isShort = compare(arith::CmpIPredicate::sle, asIndex(length), index(stepPositions));
    Value end = select(isShort, index(0), add(begun, chunksOfTask() * rows));
    auto prepare = [&](Value begin, ValueRange before) {
      return prepareChunk(begin, div(sub(begin, begun), index(rows)), all.with(before)).getValues();
    };
    return overChunks(/*isForward=*/true, parts, prepare, begun, end);
  };
  OpFoldResult tasks = getAsOpFoldResult(ceilDiv(chunks, index(chunksOfTask())));
  scf::ForallOp loop = overTasks("linear_attention.chunks", all.getValues(), places, body, tasks);
  return all.with(loop.getResults());
}

//===----------------------------------------------------------------------===//
// Columns
//===----------------------------------------------------------------------===//

StructuredEmitter::Place LinearForwardTasks::placeOfBlocks(Value number, int64_t count) {
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  return {{sequence, stateHead, getAsOpFoldResult(number), zero, zero},
          {one, one, b.getIndexAttr(count), b.getIndexAttr(depth), b.getIndexAttr(blockColumns)}};
}

StructuredEmitter::Place LinearForwardTasks::placeInStates() {
  Place place = placeOfState(blockColumns);
  place.offsets.back() = getAsOpFoldResult(mul(partOfTask, blockColumns));
  return place;
}

Value LinearForwardTasks::copyColumns(Value from, const Place &source, Value into, const Place &target) {
  auto matrixAt = [&](Value tensor, const Place &place) {
    SmallVector<bool> isKept(place.sizes.size() - 2, false);
    isKept.append(2, true);
    return slice(tensor, place.offsets, place.sizes, isKept);
  };
  Type element = getElementTypeOrSelf(into);
  Value x = matrixAt(from, source), to = matrixAt(into, target);
  Value done = getElementTypeOrSelf(x) == element
                   ? linalg::CopyOp::create(b, loc, x, to).getResult(0)
                   : apply(2, 0, {{x, {0, 1}}}, {{to, {0, 1}}},
                           [&](ValueRange args) -> SmallVector<Value> { return {convert(args[0], element)}; })[0];
  return tensor::InsertSliceOp::create(b, loc, done, into, target.offsets, target.sizes,
                                       SmallVector<OpFoldResult>(target.sizes.size(), b.getIndexAttr(1)));
}

SmallVector<Value> LinearForwardTasks::visitPrepared(const Prepared &all, Value begin, Value number,
                                                     ValueRange carried) {
  auto prepared = [&](Value each) { return loadPrepared(each, stateHead, number); };
  Chunk chunk;
  if (!all.keys)
    chunk = loadKeys(begin);
  chunk.begin = begin;
  chunk.decay.entering = prepared(all.entering), chunk.decay.leaving = prepared(all.leaving);
  chunk.decay.between = chunk.decay.entering; // not null: the decay is not of rows
  chunk.decay.whole = prepared(all.whole);
  Writing writing{prepared(all.solved), all.keys ? prepared(all.erase) : asOperand(chunk.erase)};
  auto reading = [&](Value head, Value member) -> Reading {
    Value ofOutput = add(mul(stateHead, group), member);
    Value queries = all.queries ? loadPrepared(all.queries, ofOutput, number)
                                : asOperand(loadFeatures(op.getQuery(), op.getQueryDims(), head, begin));
    return {queries, chunk.decay.entering, loadPrepared(all.within, ofOutput, number), /*divisors=*/Value()};
  };
  Value keys = all.keys ? prepared(all.keys) : asOperand(chunk.keys);
  return visitColumns(chunk, writing, reading, keys, carried);
}

SmallVector<Value> LinearForwardTasks::visitShort(ValueRange carried) {
  return overColumns(carried, [&](Value number, ValueRange before) -> SmallVector<Value> {
    Value first = std::exchange(firstColumn, add(firstColumn, mul(number, blockColumns)));
    int64_t columnsOfAll = std::exchange(taskColumns, blockColumns);
    Value state = columnsOfAll == blockColumns ? before[0] : part(before[0], number), output = before[1];
    Place place;
    place.sizes = tensor::getMixedSizes(b, loc, output);
    place.offsets.assign(place.sizes.size(), b.getIndexAttr(0));
    unsigned position = *op.getOutputDims().position(Dim::Depth);
    place.offsets[position] = getAsOpFoldResult(mul(number, blockColumns));
    place.sizes[position] = b.getIndexAttr(blockColumns);
    SmallVector<Value> done = visitPositions({state, slice(output, place)});
    firstColumn = first, taskColumns = columnsOfAll;
    output = tensor::InsertSliceOp::create(b, loc, done[1], output, place.offsets, place.sizes,
                                           SmallVector<OpFoldResult>(place.sizes.size(), b.getIndexAttr(1)));
    return {insertColumns(done[0], before[0], number), output};
  });
}

SmallVector<Value> LinearForwardTasks::visitSegment(const Prepared &all, Value first, Value end, ValueRange parts) {
  taskColumns = splitColumns();
  firstColumn = mul(partOfTask, taskColumns);
  Place whole = atBegin(placeOfBlocks(partOfTask, blocks()));
  SmallVector<bool> isKept = {false, false, blocks() > 1, true, true};
  SmallVector<Value> begun = {slice(parts[1], whole.offsets, whole.sizes, isKept), parts[0]};
  auto visit = [&](Value begin, ValueRange carried) {
    return visitPrepared(all, begin, div(sub(begin, first), index(rows)), carried);
  };
  // A short sequence has one segment.
  Value isShort = compare(arith::CmpIPredicate::sle, asIndex(length), index(stepPositions));
  auto ofShort = [&] {
    return choose(isEqual(first, index(0)), [&] { return visitShort(begun); }, [&] { return begun; });
  };
  SmallVector<Value> done =
      choose(isShort, ofShort, [&] { return overChunks(/*isForward=*/true, begun, visit, first, end); });
  Value states = tensor::InsertSliceOp::create(b, loc, done[0], parts[1], whole.offsets, whole.sizes,
                                               SmallVector<OpFoldResult>(whole.sizes.size(), b.getIndexAttr(1)));
  return {done[1], states};
}

Value LinearForwardTasks::initialColumns() {
  OpFoldResult count = b.getIndexAttr(valueDepth / blockColumns);
  OpFoldResult heads = getDimSize(b, loc, op.getValue(), op.getValueDims(), Dim::Head);
  Value states = allocated({batches, heads, count, b.getIndexAttr(depth), b.getIndexAttr(blockColumns)}, type);
  Value before = linear.getState();
  if (!before)
    return StructuredEmitter::filled(states, 0.0);
  auto places = [&]() -> SmallVector<Place> { return {placeOfBlocks(partOfTask, 1)}; };
  auto load = [&](ValueRange part) -> SmallVector<Value> {
    return {copyColumns(before, placeInStates(), part[0], atBegin(placeOfBlocks(partOfTask, 1)))};
  };
  return overTasks("linear_attention.state", {states}, places, load, count).getResult(0);
}

SmallVector<Value> LinearForwardTasks::emitColumns(ValueRange inits, Value states) {
  int64_t columns = splitColumns();
  OpFoldResult parts = b.getIndexAttr(valueDepth / columns), count = b.getIndexAttr(valueDepth / blockColumns);
  auto places = [&]() -> SmallVector<Place> {
    Place output = placeOfQueries(op.getOutputDims(), columns);
    output.offsets[*op.getOutputDims().position(Dim::Depth)] = getAsOpFoldResult(mul(partOfTask, columns));
    int64_t blocksOfTask = columns / blockColumns;
    return {output, placeOfBlocks(mul(partOfTask, blocksOfTask), blocksOfTask)};
  };
  // No segments if there are no tasks.
  Value extent = extentOf(op.getValue(), op.getValueDims(), Dim::Seq);
  extent = select(isEqual(asIndex(batches), index(0)), index(0), extent);
  auto chunksOf = [&](Value positions) { return ceilDiv(min(positions, index(segmentPositions)), index(rows)); };
  Prepared memory = emptyPrepared(chunksOf(extent));
  SmallVector<Value> carried = {inits[0], states};
  llvm::append_range(carried, memory.getValues());
  carried = loop(index(0), extent, segmentPositions, carried, [&](Value first, ValueRange before) {
    Value left = sub(extent, first), end = add(first, min(left, index(segmentPositions)));
    Prepared all = prepareSegment(first, chunksOf(left), memory.with(before.drop_front(2)));
    auto visit = [&](ValueRange slices) { return visitSegment(all, first, end, slices); };
    scf::ForallOp loop = overTasks("linear_attention.columns", before.take_front(2), places, visit, parts);
    SmallVector<Value> next(loop.getResults());
    llvm::append_range(next, all.getValues());
    return next;
  });
  SmallVector<Value> results = {carried[0]};
  Value after = carried[1];
  if (linear.getFinalState()) {
    auto ofFinal = [&]() -> SmallVector<Place> { return {placeInStates()}; };
    auto store = [&](ValueRange part) -> SmallVector<Value> {
      return {copyColumns(after, placeOfBlocks(partOfTask, 1), part[0], atBegin(placeInStates()))};
    };
    results.push_back(overTasks("linear_attention.state", {inits[1]}, ofFinal, store, count).getResult(0));
  }
  return results;
}
