//===- Consumer.cpp - A warpgroup of sm_90a that computes ---------------------===//
//
// The main loop is that of FlashAttention-3 (Shah et al. 2024, algorithm 2): a step starts Q·Kᵀ of its tile, then P·V
// of the tile before, and computes its softmax while the second product runs. One copy of a step serves partial and
// full tiles: ptxas accepts a branch around the mask between the start of a product and the wait for it.
//
//===----------------------------------------------------------------------===//
#include "../SM80/MMA.h"
#include "PartialState.h"
#include "Roles.h"
#include "WGMMA.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

/// The named barrier of the first turn of warpgroups.
static constexpr int64_t turnBarrier = Consumer::barrier + 1;

Consumer::Consumer(const Emitter &e, AccumulateOp op, const WarpgroupShape &shape, const ItemPlace &place,
                   const PendingTile &pending, const PrivateState &state, bool endsWithTensor)
    : WarpgroupRole(e, op, shape, place), pending(pending), state(state), lane(this->e, shape),
      // Uniform in the warp, which LLVM cannot know.
      group(shape.consumers == 1 ? this->e.i32(0) : this->e.shuffleFrom(this->e.div(lane.warp, 4), this->e.i32(0))),
      endsWithTensor(endsWithTensor) {}

void Consumer::meet() { NamedBarrier{e.i32(barrier), shape.warps * 32}.wait(e); }

void Consumer::waitForQueries() {
  RingPlace at = queries.at(e, item.items);
  at.full.wait(e, at.parity);
}

void Consumer::loadQueries() {
  copyQueryRows(e, op, shape, queryTile());
  // wgmma of all warps reads what threads have written.
  fenceAsyncProxy(e);
  meet();
}

void Consumer::releaseQueries() {
  // The next copy to shared memory follows reads and writes of all lanes.
  fenceAsyncProxy(e);
  NVVM::SyncWarpOp::create(e.b, e.loc, e.i32(-1));
  release(queries.at(e, item.items));
}

void Consumer::computeTiles() {
  FragmentScores scoring = makeScores(lane);
  FragmentSoftmax softmax(e, scoring, state, Lane::perRow,
                          [&](ArrayRef<Value> ofRows) { e.storeAll(ofRows, pending.factors); });
  Value rows = e.add(queryTile(), e.mul(group, shape.boxBytes(shape.groupRows)));
  Value queries = tileDescriptor(e, rows, /*leadingBytes=*/16);
  // The weights of the item before are not kept in registers until the first ones of this item.
  Value none = LLVM::UndefOp::create(e.b, e.loc, e.b.getI32Type());
  e.storeAll(SmallVector<Value>(shape.weightWords(), none), pending.weights);
  scoring.forEachTile(scoring.getTiles(shape.keys()), shape.keys(), [&](const KeyTile &tile) {
    Value isFull = tile.isFull();
    SmallVector<Value> words = e.choose(
        isFirstStep(), [&] { return startTile(softmax, tile, queries); },
        [&] { return continueTile(softmax, tile, queries, isFull); });
    e.storeAll(words, pending.weights);
    if (!endsWithTensor)
      clearValues(tile.first, values.at(e, step()));
    nextStep();
  });
}

void Consumer::finish() {
  e.ifElse(e.isLess(item.firstStep, step()), [&] {
    RingPlace ofValues = values.at(e, e.add(step(), -1));
    ofValues.full.wait(e, ofValues.parity);
    // The last turn that has been passed on, by the last warpgroup.
    e.ifElse(e.isEqual(group, e.i32(0)), [&] { takeTurn(); });
    e.storeAll(waitForGroups(e, 0, startSums(ofValues.stage)), state.acc);
    release(ofValues);
  });
}

void Consumer::resetRowsAfterQueries() { clearRows(e, makeFragment(lane), queryRows(), state); }

SmallVector<Value> Consumer::startTile(FragmentSoftmax &softmax, const KeyTile &tile, Value queries) {
  FragmentScores &scoring = softmax.scoring;
  RingPlace ofKeys = keys.at(e, step());
  SmallVector<Value> visible;
  if (scoring.testsTiles())
    visible = scoring.evaluateMask(tile.first);
  ofKeys.full.wait(e, ofKeys.parity);
  // The first turn is that of the first warpgroup.
  e.ifElse(e.isLess(e.i32(0), group), [&] { takeTurn(); });
  SmallVector<Value> scores = startScores(queries, ofKeys.stage);
  passTurn();
  scores = waitForGroups(e, 0, scores);
  release(ofKeys);
  scoring.evaluate(scores, tile.first, arith::ConstantIntOp::create(e.b, e.loc, 0, 1), visible);
  // The accumulator is 0, so it needs no factors.
  softmax.apply(scores, tile.first);
  return packWeights(scores);
}

SmallVector<Value> Consumer::continueTile(FragmentSoftmax &softmax, const KeyTile &tile, Value queries, Value isFull) {
  FragmentScores &scoring = softmax.scoring;
  RingPlace ofKeys = keys.at(e, step()), ofValues = values.at(e, e.add(step(), -1));
  SmallVector<Value> visible;
  if (scoring.testsTiles())
    visible = e.choose(
        isFull, [&] { return SmallVector<Value>(scoring.maskWords(), e.i32(-1)); },
        [&] { return scoring.evaluateMask(tile.first); });
  // Values of the last step have been copied before keys of this one, so the second wait is short.
  ofKeys.full.wait(e, ofKeys.parity);
  ofValues.full.wait(e, ofValues.parity);
  takeTurn();
  SmallVector<Value> scores = startScores(queries, ofKeys.stage), sums = startSums(ofValues.stage);
  passTurn();
  scores = waitForGroups(e, 1, scores);
  release(ofKeys);
  scoring.evaluate(scores, tile.first, isFull, visible);
  Value rescales = softmax.applyLazily(scores, tile.first);
  // ptxas moves a wait up over the exponentials of its basic block, which this branch ends. The wait itself cannot be
  // in a branch: all warps of a warpgroup have to execute it, and some may rescale when others do not.
  e.ifElse(rescales, [&] { pause(e); });
  // The product reads the registers of the last weights, so the next ones are packed after the wait.
  sums.append(scores);
  sums = waitForGroups(e, 0, sums);
  release(ofValues);
  e.storeAll(ArrayRef(sums).take_front(shape.accElements()), state.acc);
  e.ifElse(rescales, [&] {
    for (int64_t i = 0; i < shape.accElements(); ++i)
      e.store(e.mulf(e.load(state.acc, i), e.load(pending.factors, i % 4 / 2)), state.acc, i);
  });
  return packWeights(ArrayRef(sums).drop_front(shape.accElements()));
}

NamedBarrier Consumer::turnOf(Value group) { return {e.add(group, turnBarrier), 2 * shape.groupThreads}; }

void Consumer::takeTurn() {
  if (shape.takesTurns())
    turnOf(group).wait(e);
}

void Consumer::passTurn() {
  Value next = e.add(group, 1), isLast = e.isEqual(next, e.i32(shape.consumers));
  if (shape.takesTurns())
    turnOf(e.select(isLast, e.i32(0), next)).arrive(e);
}

SmallVector<Value> Consumer::packWeights(ArrayRef<Value> weights) {
  SmallVector<Value> words;
  for (size_t i = 0; i < weights.size(); i += 2)
    words.push_back(packWord(e, shape.element, weights[i], weights[i + 1]));
  return words;
}

SmallVector<Value> Consumer::startScores(Value queries, Value stage) {
  SmallVector<std::pair<int64_t, int64_t>> offsets;
  for (int64_t k = 0; k < shape.depth; k += 16) {
    int64_t box = k / shape.boxColumns, inRow = k % shape.boxColumns * 2;
    offsets.push_back({box * shape.boxBytes(shape.rows) + inRow, box * shape.boxBytes(shape.keys()) + inRow});
  }
  return startProduct(e, shape.element, shape.keys(), queries, tileDescriptor(e, keyTile(stage), /*leadingBytes=*/16),
                      offsets);
}

SmallVector<Value> Consumer::startSums(Value stage) {
  SmallVector<int64_t> offsets;
  for (int64_t k = 0; k < shape.keys(); k += 16)
    offsets.push_back(k * shape.boxRowBytes);
  Value tile = tileDescriptor(e, valueTile(stage), /*leadingBytes=*/shape.boxBytes(shape.keys()));
  return addProduct(e, shape.element, e.loadAll(state.acc), e.loadAll(pending.weights), tile, offsets);
}

void Consumer::clearValues(Value first, const RingPlace &at) {
  Value count = e.toI32(rowsOf(op.getKey(), op.getKeyDims())), tile = valueTile(at.stage);
  Value begin = e.sub(e.i32(0), first), end = e.sub(count, first);
  Value isWhole = e.andi(e.isAtMost(begin, e.i32(0)), e.isAtMost(e.i32(shape.keys()), end));
  int64_t threads = shape.warps * 32, bytes = shape.tileBytes(shape.keys(), shape.valueDepth);
  e.ifElse(
      isWhole, [] {},
      [&] {
        at.full.wait(e, at.parity);
        Value thread = e.add(e.thread(), -shape.firstWarp * 32);
        clearTileRows(e, tile, shape.keys(), bytes, thread, threads,
                      [&](Value row) { return e.andi(e.isAtMost(begin, row), e.isLess(row, end)); });
        // wgmma of all warpgroups reads what threads have written.
        fenceAsyncProxy(e);
        meet();
      });
}
