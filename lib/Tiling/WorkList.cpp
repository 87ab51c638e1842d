//===- WorkList.cpp - The work items of ragged attention ----------------------===//
//
// Emits serial code before the parallel loop. Its time and memory are linear in the number of sequences and items.
//
//===----------------------------------------------------------------------===//
#include "WorkList.h"
#include "TableEmitter.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace saccade;

/// The number of leading zeros of a cost of 64 bits is one of these.
static constexpr int64_t buckets = 65;

WorkList saccade::listItems(OpBuilder &b, Location loc, Value count, Value capacity, bool onDevice,
                            function_ref<Value(OpBuilder &, Value)> partsOf,
                            function_ref<Value(OpBuilder &, Value)> costOf) {
  TableEmitter e{b, loc};
  Value zero = e.index(0), bucketCount = e.index(buckets);
  auto bucketOf = [&](Value i) -> Value {
    Value cost = arith::IndexCastOp::create(b, loc, b.getI64Type(), costOf(b, i));
    Value zeros = math::CountLeadingZerosOp::create(b, loc, cost);
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), zeros);
  };
  // Counting sort by the number of leading zeros of the cost.
  auto fill = [&](ValueRange tables) -> SmallVector<Value> {
    Value places = e.loop(zero, bucketCount, 1, tables[3], [&](Value i, ValueRange carried) -> SmallVector<Value> {
      return {e.set(carried[0], i, zero)};
    })[0];
    places = e.loop(zero, count, 1, places, [&](Value i, ValueRange carried) -> SmallVector<Value> {
      Value bucket = bucketOf(i);
      return {e.set(carried[0], bucket, e.add(e.get(carried[0], bucket), partsOf(b, i)))};
    })[0];
    SmallVector<Value> prefixSums =
        e.loop(zero, bucketCount, 1, {places, zero}, [&](Value i, ValueRange carried) -> SmallVector<Value> {
          Value here = e.get(carried[0], i);
          return {e.set(carried[0], i, carried[1]), e.add(carried[1], here)};
        });
    SmallVector<Value> filled = e.loop(
        zero, count, 1, {prefixSums[0], tables[1], tables[0]}, [&](Value i, ValueRange carried) -> SmallVector<Value> {
          Value bucket = bucketOf(i), first = e.get(carried[0], bucket), end = e.add(first, partsOf(b, i));
          Value sequences = e.loop(first, end, 1, carried[2], [&](Value item, ValueRange inner) -> SmallVector<Value> {
            return {e.set(inner[0], item, i)};
          })[0];
          return {e.set(carried[0], bucket, end), e.set(carried[1], i, first), sequences};
        });
    return {filled[2], filled[1], e.set(tables[2], zero, prefixSums[1]), filled[0]};
  };
  SmallVector<Value> tables = e.fillTables({capacity, count, e.index(1), bucketCount}, onDevice, fill);
  if (onDevice)
    return {tables[0], tables[1], capacity, tables[2]};
  return {tables[0], tables[1], e.get(tables[2], zero), nullptr};
}

WorkList::Item WorkList::item(OpBuilder &b, Location loc, Value number) const {
  TableEmitter e{b, loc};
  Value isItem, sequence = e.get(sequences, number);
  if (total) {
    isItem = e.isLess(number, e.get(total, e.index(0)));
    sequence = e.select(isItem, sequence, e.index(0));
  }
  Value part = e.sub(number, e.get(itemOffsets, sequence));
  return {sequence, isItem ? e.select(isItem, part, e.index(0)) : part, isItem};
}
