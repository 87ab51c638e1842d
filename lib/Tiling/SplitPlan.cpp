//===- SplitPlan.cpp - The work items of split-KV attention -------------------===//
//
// Tables take time and memory linear in the number of sequences and items. They are serial code before the parallel
// loops.
//
//===----------------------------------------------------------------------===//
#include "SplitPlan.h"
#include "TableEmitter.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

namespace {

/// What the bounds of a mask read, apart from positions and scalars.
struct BoundReads {
  bool head = false, tensor = false;
};

} // namespace

static BoundReads findReads(AttentionOp op) {
  BoundReads reads;
  if (op.getMask().empty())
    return reads;
  RegionArguments args = getRegionArguments(op.getMask(), /*numbers=*/0);
  KeyBounds bounds(op);
  SetVector<Value> pending;
  for (const AffineConstraint &constraint : bounds.getConstraints())
    for (auto [coefficient, term] : constraint.terms)
      pending.insert(term);
  for (unsigned i = 0; i < pending.size(); ++i) {
    Value value = pending[i];
    reads.head |= value == args.head;
    // The position of a batch differs between sequences, as an element of a tensor may.
    reads.tensor |= value == args.batch || isa<RankedTensorType>(value.getType());
    if (Operation *producer = value.getDefiningOp())
      pending.insert_range(producer->getOperands());
  }
  return reads;
}

Value saccade::usesSplitKV(OpBuilder &b, AttentionOp op, Value queries) {
  IndexEmitter e{b, op.getLoc()};
  return e.compare(arith::CmpIPredicate::sle, queries, e.index(op.getSplitKvAttr().getQueries()));
}

SplitPlan::SplitPlan(OpBuilder &b, AttentionOp op, Sequences &sequences, bool onDevice)
    : op(op), sequences(sequences), schedule(op.getSplitKvAttr()), onDevice(onDevice) {
  TableEmitter e{b, op.getLoc()};
  AttentionSteps whole(b, op);
  kvHeads = whole.sizeOf(op.getKey(), op.getKeyDims(), Dim::Head);
  Value one = e.index(1), heads = whole.sizeOf(op.getQuery(), op.getQueryDims(), Dim::Head);
  // Without query heads no KV head has items. Divisors must be nonzero.
  kvHeads = e.min(kvHeads, heads);
  headsPerKVHead = e.max(one, e.div(heads, e.max(one, kvHeads)));
  bool hasLengths = llvm::any_of(ValueRange{op.getQLen(), op.getKvLen()},
                                 [](Value length) { return length && isa<RankedTensorType>(length.getType()); });
  BoundReads reads = findReads(op);
  // A list of dense sequences would cost a GPU more than the chunks that it saves.
  bool hasTables = op.isRagged() || (!onDevice && (hasLengths || reads.head || reads.tensor));
  dependsOnHead = reads.head && hasTables;
  slots = dependsOnHead ? kvHeads : one;
  maxTiles = tilesOf(b, op.getCuSeqlensQ() ? e.index(schedule.getQueries()) : queriesOf(b, e.index(0)));
  if (hasTables) {
    listItems(b);
    return;
  }
  common = chunksOf(b, op, /*slot=*/nullptr, /*readsBounds=*/!hasLengths && !reads.head && !reads.tensor);
  isSingle = e.isEqual(common.count, one);
  Value perHead = e.mul(common.count, maxTiles);
  items = e.mul(e.mul(sequences.count, kvHeads), perHead);
}

/// The number of queries of a sequence. A sequence with more than the schedule's has no items, so its number does not
/// matter; it is limited such that no slice of a state is out of bounds.
Value SplitPlan::queriesOf(OpBuilder &b, Value sequence) {
  IndexEmitter e{b, op.getLoc()};
  return e.min(sequences.length(b, Role::Query, sequence), e.index(schedule.getQueries()));
}

/// The smallest number of head tiles whose rows suffice, to minimize reads of the keys.
Value SplitPlan::tilesOf(OpBuilder &b, Value queries) {
  IndexEmitter e{b, op.getLoc()};
  Value one = e.index(1), maxHeads = e.max(one, e.div(e.index(schedule.getRows()), e.max(one, queries)));
  return e.ceilDiv(headsPerKVHead, maxHeads);
}

/// The chunks of `slot` that are visible to some query. There is at least one, which has the results of a row without
/// keys. Without `readsBounds` they are the chunks of all keys.
SplitPlan::Chunks SplitPlan::chunksOf(OpBuilder &b, AttentionOp sequence, Value slot, bool readsBounds) {
  AttentionSteps steps(b, sequence);
  Value zero = steps.index(0), one = steps.index(1), size = steps.index(schedule.getCols());
  Value begin = zero, end = steps.keys;
  readsBounds &= op.getKvLen() || !op.getMask().empty();
  auto clamp = [&](const KeyRange &range) -> SmallVector<Value> {
    Value first = steps.max(zero, steps.min(steps.sub(range.begin, steps.at.key), steps.keys));
    return {first, steps.max(first, steps.min(steps.sub(range.end, steps.at.key), steps.keys))};
  };
  if (readsBounds && dependsOnHead) {
    Value first = steps.mul(slot, headsPerKVHead);
    SmallVector<Value> bounds =
        steps.loop(first, steps.add(first, headsPerKVHead), 1, {steps.keys, zero}, [&](Value head, ValueRange hull) {
          SmallVector<Value> own = clamp(steps.visibleKeys(head));
          Value isSome = steps.isLess(own[0], own[1]);
          return SmallVector<Value>{steps.select(isSome, steps.min(hull[0], own[0]), hull[0]),
                                    steps.select(isSome, steps.max(hull[1], own[1]), hull[1])};
        });
    begin = steps.min(bounds[0], bounds[1]), end = bounds[1];
  } else if (readsBounds) {
    SmallVector<Value> bounds = clamp(steps.visibleKeys(zero));
    begin = bounds[0], end = bounds[1];
  }
  auto chunkOf = [&](Value key) -> Value {
    return b.createOrFold<arith::FloorDivSIOp>(steps.loc, steps.add(steps.at.key, key), size);
  };
  Value first = chunkOf(begin);
  Value last = chunkOf(steps.add(end, steps.sub(size, one)));
  return {first, steps.max(one, steps.sub(last, first))};
}

/// An upper bound of the number of items that follows from shapes: n keys touch at most ⌊n / cols⌋ + 2 chunks.
Value SplitPlan::capacity(OpBuilder &b) {
  IndexEmitter e{b, op.getLoc()};
  Value chunks = e.add(e.div(sequences.total(b, Role::Key), schedule.getCols()), e.mul(sequences.count, 2));
  Value isSome = e.isLess(e.index(0), sequences.count);
  return e.select(isSome, e.mul(e.mul(chunks, kvHeads), maxTiles), e.index(0));
}

/// The number of KV heads of a slot.
Value SplitPlan::headsPerSlot(OpBuilder &b) { return dependsOnHead ? IndexEmitter{b, op.getLoc()}.index(1) : kvHeads; }

void SplitPlan::listItems(OpBuilder &b) {
  TableEmitter e{b, op.getLoc()};
  Value zero = e.index(0), all = e.mul(sequences.count, slots);
  // The first pass computes the chunks of each slot, the second one lists the items.
  SmallVector<Value> sizes = {all, all, all, e.index(1)};
  SmallVector<Value> tables = e.fillTables(sizes, onDevice, [&](ValueRange empty) -> SmallVector<Value> {
    SmallVector<Value> carried(empty.drop_back());
    carried.push_back(zero);
    carried = e.loop(zero, all, 1, carried, [&](Value slot, ValueRange carried) -> SmallVector<Value> {
      Value number = e.div(slot, slots);
      AttentionOp sequence = sequences.extract(b, number);
      Chunks chunks = chunksOf(b, sequence, e.rem(slot, slots), /*readsBounds=*/true);
      sequence.erase();
      Value count = e.select(usesSplitKV(b, op, sequences.length(b, Role::Query, number)), chunks.count, zero);
      Value more = e.mul(e.mul(count, tilesOf(b, queriesOf(b, number))), headsPerSlot(b));
      return {e.set(carried[0], slot, chunks.first), e.set(carried[1], slot, count),
              e.set(carried[2], slot, carried[3]), e.add(carried[3], more)};
    });
    carried[3] = e.set(empty[3], zero, carried[3]);
    return carried;
  });
  firstChunks = tables[0], chunkCounts = tables[1], firstItems = tables[2], total = tables[3];
  items = onDevice ? capacity(b) : e.get(total, zero);
  slotOfItem = e.fillTables(items, onDevice, [&](ValueRange empty) -> SmallVector<Value> {
    return e.loop(zero, all, 1, empty, [&](Value slot, ValueRange carried) -> SmallVector<Value> {
      Value isLast = e.isEqual(e.add(slot, e.index(1)), all), begin = e.get(firstItems, slot);
      Value next = e.get(firstItems, e.select(isLast, slot, e.add(slot, e.index(1))));
      return e.loop(begin, e.select(isLast, e.get(total, zero), next), 1, carried,
                    [&](Value item, ValueRange inner) { return SmallVector<Value>{e.set(inner[0], item, slot)}; });
    });
  })[0];
}

SplitPlan::Group SplitPlan::group(OpBuilder &b, Value sequence, Value kvHead) {
  TableEmitter e{b, op.getLoc()};
  Group group;
  group.sequence = sequence, group.kvHead = kvHead, group.queries = queriesOf(b, sequence);
  group.firstChunk = common.first, group.chunks = common.count;
  group.tiles = tilesOf(b, group.queries), group.stride = e.mul(headsPerSlot(b), group.tiles);
  Value headOfSlot = dependsOnHead ? e.index(0) : kvHead, firstOfSlot;
  if (slotOfItem) {
    Value slot = dependsOnHead ? e.add(e.mul(sequence, slots), kvHead) : sequence;
    firstOfSlot = e.get(firstItems, slot);
    group.firstChunk = e.get(firstChunks, slot);
    group.chunks = e.get(chunkCounts, slot);
  } else {
    firstOfSlot = e.mul(sequence, e.mul(group.chunks, group.stride));
  }
  group.firstItem = e.add(firstOfSlot, e.mul(headOfSlot, group.tiles));
  return group;
}

SplitPlan::Item SplitPlan::item(OpBuilder &b, Value number) {
  TableEmitter e{b, op.getLoc()};
  Value sequence, kvHead, isItem;
  if (slotOfItem) {
    Value slot = e.get(slotOfItem, number);
    if (onDevice) {
      isItem = e.isLess(number, e.get(total, e.index(0)));
      slot = e.select(isItem, slot, e.index(0));
      number = e.select(isItem, number, e.get(firstItems, slot));
    }
    Value rest = e.sub(number, e.get(firstItems, slot));
    sequence = e.div(slot, slots);
    Value tile = e.div(rest, tilesOf(b, queriesOf(b, sequence)));
    kvHead = dependsOnHead ? e.rem(slot, slots) : e.rem(tile, kvHeads);
  } else {
    Value tile = e.div(number, maxTiles);
    sequence = e.div(tile, e.mul(common.count, kvHeads));
    kvHead = e.rem(tile, kvHeads);
  }
  Item item;
  item.group = group(b, sequence, kvHead);
  Value rest = e.sub(number, item.group.firstItem), chunk = e.div(rest, item.group.stride);
  item.chunk = e.add(item.group.firstChunk, chunk);
  item.tile = e.rem(rest, item.group.tiles);
  item.isFirst = e.isEqual(chunk, e.index(0));
  item.isItem = isItem;
  return item;
}

/// The heads are distributed evenly over the tiles.
Value SplitPlan::headsPerTile(OpBuilder &b, Value tiles) {
  return IndexEmitter{b, op.getLoc()}.ceilDiv(headsPerKVHead, tiles);
}

Value SplitPlan::tileOf(OpBuilder &b, const Group &group, Value head) {
  return IndexEmitter{b, op.getLoc()}.div(head, headsPerTile(b, group.tiles));
}

Value SplitPlan::maxRows(OpBuilder &b) {
  IndexEmitter e{b, op.getLoc()};
  if (op.getCuSeqlensQ())
    return e.index(schedule.getRows());
  return e.mul(headsPerTile(b, maxTiles), queriesOf(b, e.index(0)));
}

Heads SplitPlan::heads(OpBuilder &b, const Group &group, Value tile) {
  IndexEmitter e{b, op.getLoc()};
  Value perTile = headsPerTile(b, group.tiles), first = e.mul(tile, perTile);
  Value count = e.max(e.index(0), e.min(perTile, e.sub(headsPerKVHead, first)));
  return {e.add(e.mul(group.kvHead, headsPerKVHead), first), count};
}
