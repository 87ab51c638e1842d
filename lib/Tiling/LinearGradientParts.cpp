//===- LinearGradientParts.cpp - Gradients of linear attention on GPUs --------===//
//
// The state of a head and its gradient do not fit in shared memory together, and a GPU needs more tasks than there are
// heads. Columns of the gradient of the state do not depend on each other: a loop over blocks of them computes the
// gradients of the values, and stores the gradient of the state after each chunk. Given these, all other gradients of a
// chunk depend on no other chunk.
//
//===----------------------------------------------------------------------===//
#include "LinearGradientTasks.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// The largest head size of bf16 whose chunks have as many positions as in the forward pass.
static constexpr int64_t largeDepth = 64;

/// Columns of the state of a task, if the head size is a multiple of them.
static constexpr int64_t mostColumns = 64;

int64_t LinearGradientTasks::rowsOnDevice() {
  int64_t ofKeys = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth),
          ofValues = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth),
          largest = std::max(ofKeys, ofValues);
  bool isLarge = largest > largeDepth, isWide = productType == type && 2 * largest > largeDepth;
  int64_t halvings = isLarge + isWide + (isLarge && op.hasMatrixDecay());
  return std::min(rows, std::max(rows >> halvings, blockRows));
}

int64_t LinearGradientTasks::columnsOfPart() {
  return onDevice && op.getCausal() && valueDepth % mostColumns == 0 ? mostColumns : valueDepth;
}

OpFoldResult LinearGradientTasks::parts() {
  return onDevice ? OpFoldResult(b.getIndexAttr(valueDepth / columnsOfPart())) : OpFoldResult();
}

void LinearGradientTasks::takeColumns() {
  if (!partOfTask)
    return;
  taskColumns = columnsOfPart();
  firstColumn = mul(partOfTask, taskColumns);
}

//===----------------------------------------------------------------------===//
// What loops store for each other
//===----------------------------------------------------------------------===//

/// The chunks of a task in a tensor of states. Those of a ragged sequence begin at the number of whole chunks before
/// it and one for each sequence before it, so that no two sequences share one.
StructuredEmitter::Place LinearGradientTasks::placeOfChunks() {
  Value extent = extentOf(op.getValue(), op.getValueDims(), Dim::Seq);
  Value first = start ? add(div(start, rows), sequence) : mul(sequence, ceilDiv(extent, index(rows)));
  return {{stateHead, first, b.getIndexAttr(0), getAsOpFoldResult(firstColumn)},
          {b.getIndexAttr(1), getAsOpFoldResult(ceilDiv(asIndex(length), index(rows))), b.getIndexAttr(depth),
           b.getIndexAttr(taskColumns)}};
}

StructuredEmitter::Place LinearGradientTasks::placeOfRemainders() {
  Value first = start ? start : mul(sequence, extentOf(op.getValue(), op.getValueDims(), Dim::Seq));
  return {{stateHead, first, getAsOpFoldResult(firstColumn)}, {b.getIndexAttr(1), length, b.getIndexAttr(taskColumns)}};
}

Value LinearGradientTasks::emptyStates() {
  Value batches = asIndex(getBatches(b, op)), extent = extentOf(op.getValue(), op.getValueDims(), Dim::Seq);
  Value chunks = starts ? add(add(div(extent, rows), batches), 1) : mul(batches, ceilDiv(extent, index(rows)));
  return allocated({getDimSize(b, loc, op.getValue(), op.getValueDims(), Dim::Head), getAsOpFoldResult(chunks),
                    b.getIndexAttr(depth), b.getIndexAttr(valueDepth)},
                   onDevice ? productType : type);
}

Value LinearGradientTasks::emptyRemainders() {
  Value batches = asIndex(getBatches(b, op)), extent = extentOf(op.getValue(), op.getValueDims(), Dim::Seq);
  return allocated({getDimSize(b, loc, op.getValue(), op.getValueDims(), Dim::Head),
                    getAsOpFoldResult(starts ? extent : mul(batches, extent)), b.getIndexAttr(valueDepth)},
                   type);
}

Value LinearGradientTasks::copied(Value from, Value to) {
  Type element = getElementTypeOrSelf(to);
  if (getElementTypeOrSelf(from) == element)
    return linalg::CopyOp::create(b, loc, from, to).getResult(0);
  return apply(2, 0, {{from, {0, 1}}}, {{to, {0, 1}}},
               [&](ValueRange args) -> SmallVector<Value> { return {convert(args[0], element)}; })[0];
}

Value LinearGradientTasks::storeOfChunk(Value state, Value into, Value begin) {
  SmallVector<OpFoldResult> offsets(4, b.getIndexAttr(0)), ones(4, b.getIndexAttr(1));
  offsets[1] = getAsOpFoldResult(div(begin, rows));
  SmallVector<OpFoldResult> sizes = {ones[0], ones[0], b.getIndexAttr(depth), b.getIndexAttr(taskColumns)};
  Value stored = copied(state, slice(into, offsets, sizes, {false, false, true, true}));
  return tensor::InsertSliceOp::create(b, loc, stored, into, offsets, sizes, ones);
}

Value LinearGradientTasks::storeOfPositions(Value values, Value into, Value begin) {
  SmallVector<OpFoldResult> offsets = {b.getIndexAttr(0), begin, b.getIndexAttr(0)}, ones(3, b.getIndexAttr(1)),
                            sizes = {ones[0], present, b.getIndexAttr(taskColumns)};
  Value stored = copied(presentRows(values), slice(into, offsets, sizes, {false, true, true}));
  return tensor::InsertSliceOp::create(b, loc, stored, into, offsets, sizes, ones);
}

Value LinearGradientTasks::loadOfChunk(Value states, Value begin) {
  Place place = placeOfChunks();
  place.offsets[1] = getAsOpFoldResult(add(asIndex(place.offsets[1]), div(begin, rows)));
  place.sizes[1] = b.getIndexAttr(1);
  return slice(states, place.offsets, place.sizes, {false, false, true, true});
}

Value LinearGradientTasks::loadOfPositions(Value values, Value begin) {
  Place place = placeOfRemainders();
  place.offsets[1] = getAsOpFoldResult(add(asIndex(place.offsets[1]), begin));
  place.sizes[1] = present;
  Value loaded = slice(values, place.offsets, place.sizes, {false, true, true});
  if (present == size)
    return loaded;
  return ofPositions(taskColumns, type, 0, [&](Value part) { return copied(loaded, part); });
}

//===----------------------------------------------------------------------===//
// Columns and chunks
//===----------------------------------------------------------------------===//

/// The loop over columns: stores the gradients of the state after all chunks and, with the delta rule, those of the
/// remainders, else those of the values. Sets the gradient of the initial state, and returns the others.
std::pair<Value, Value> LinearGradientTasks::emitColumns(Results &results) {
  SmallVector<Value> inits = {emptyStates(), op.hasDeltaRule() ? emptyRemainders() : results.value};
  if (results.state)
    inits.push_back(results.state);
  auto places = [&]() {
    takeColumns();
    SmallVector<Place> found = {placeOfChunks()};
    if (op.hasDeltaRule()) {
      found.push_back(placeOfRemainders());
    } else {
      found.push_back(placeOfRows(op.getValueDims().getDims(), stateHead, index(1), taskColumns));
      found.back().offsets[*op.getValueDims().position(Dim::Depth)] = getAsOpFoldResult(firstColumn);
    }
    if (results.state) {
      found.push_back(placeOfState(taskColumns));
      found.back().offsets.back() = getAsOpFoldResult(firstColumn);
    }
    return found;
  };
  auto visitChunk = [&](Value begin, ValueRange carried) -> SmallVector<Value> {
    Chunk chunk = loadChunk(begin);
    Value after = carried[0];
    Sums sums;
    Value leaving = decayed(chunk.keys, chunk.decay, chunk.decay.leaving, depth);
    sums.values = matmul({leaving, {0, 2}}, {after, {2, 1}}, filled({-1, taskColumns}, 0.0));
    Value stored = storeOfChunk(after, carried[1], begin), ofValues;
    sums.state = decayState(chunk, after);
    sums = addQueries(chunk, Saved(), sums);
    if (op.hasDeltaRule()) {
      Value ofRemainders = solvedGradient(chunk, sums.values);
      ofValues = storeOfPositions(ofRemainders, carried[2], begin);
      Results none;
      sums = addDeltaRule(chunk, Saved(), ofRemainders, sums, none);
    } else {
      ofValues = storeRows(carried[2], op.getValueDims().getDims(), index(0), begin, sums.values);
    }
    return {sums.state, stored, ofValues};
  };
  auto body = [&](ValueRange slices) {
    SmallVector<Value> carried = {stateOrZeros(gradient.getStateGradient()), slices[0], slices[1]};
    carried = overChunks(/*isForward=*/false, carried, visitChunk);
    SmallVector<Value> done = {carried[1], carried[2]};
    if (results.state)
      done.push_back(storeState(carried[0], slices[2], 0));
    return done;
  };
  scf::ForallOp loop = overTasks("linear_attention_gradient.columns", inits, places, body, parts());
  if (results.state)
    results.state = loop.getResult(2);
  if (!op.hasDeltaRule())
    results.value = loop.getResult(1);
  return {loop.getResult(0), op.hasDeltaRule() ? Value(loop.getResult(1)) : Value()};
}

LinearGradientTasks::Results LinearGradientTasks::emitParts(Value states, Value remainders, Results results) {
  auto [afters, ofRemainders] = emitColumns(results);
  // The gradients that chunks compute in parallel.
  Results own = results;
  own.state = Value();
  if (!op.hasDeltaRule())
    own.value = Value();
  Value extent = extentOf(op.getValue(), op.getValueDims(), Dim::Seq), begun;
  isOneChunk = true;
  auto places = [&]() {
    begun = mul(partOfTask, rows);
    Value count = max(min(sub(asIndex(length), begun), index(rows)), index(0));
    return this->places(own, begun, count);
  };
  auto body = [&, afters = afters, ofRemainders = ofRemainders](ValueRange slices) {
    auto visitChunk = [&](Value begin, ValueRange carried) {
      Chunk chunk = loadChunk(begin);
      Saved saved = savedOf(chunk, states, remainders);
      Results found = own.with(carried);
      Value ofState;
      Sums sums = beginSums(chunk, saved, loadOfChunk(afters, begin), found, ofState);
      sums = addQueries(chunk, saved, sums);
      found.query = sums.query;
      if (op.hasDeltaRule())
        sums = addDeltaRule(chunk, saved, loadOfPositions(ofRemainders, begin), sums, found);
      else
        sums.decay = addToDecay(sums.decay, chunk.keys, sums.keys, /*isNegative=*/true);
      return storeChunk(chunk, sums, ofState, found).getValues();
    };
    return overChunks(/*isForward=*/true, slices, visitChunk, begun, add(begun, rows));
  };
  OpFoldResult chunks = getAsOpFoldResult(ceilDiv(extent, index(rows)));
  scf::ForallOp loop = overTasks("linear_attention_gradient.chunks", own.getValues(), places, body, chunks);
  Results done = own.with(loop.getResults());
  done.state = results.state;
  if (!done.value)
    done.value = results.value;
  return done;
}
