//===- LinearGradientParts.cpp - Gradients of linear attention on GPUs --------===//
//
// The state of a head and its gradient do not fit in shared memory together, and a GPU needs more tasks than there are
// heads. Columns of the gradient of the state do not depend on each other: a loop over blocks of them computes the
// gradients of the values, and stores the gradient of the state after each chunk. Given these, all other gradients of a
// chunk depend on no other chunk.
//
//===----------------------------------------------------------------------===//
#include "LinearGradientTasks.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// The largest head size of bf16 whose chunks have as many positions as in the forward pass.
static constexpr int64_t largeDepth = 64;

/// Columns of the state of a task, if the head size is a multiple of them.
static constexpr int64_t mostColumns = 64;

int64_t LinearGradientTasks::rowsOnDevice() {
  int64_t ofKeys = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth),
          ofValues = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth), largest = std::max(ofKeys, ofValues);
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
