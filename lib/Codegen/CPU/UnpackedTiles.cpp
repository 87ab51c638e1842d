//===- UnpackedTiles.cpp - Few rows in tile registers -------------------------===//
//
// Scores and values of UnpackedLowering in tile registers. A few keys or values at a time are copied, as k-packs, to
// memory that stays in L1. Scores are computed as keys × queries, since a row of keys is contiguous in memory and a
// register of scores is cheaper to transpose than the keys.
//
//===----------------------------------------------------------------------===//
#include "Pack.h"
#include "TileProduct.h"
#include "UnpackedLowering.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::cpu;

/// Keys whose scores are computed at a time.
static constexpr int64_t keyBlock = maxTileBlock.rows;

/// The k-packs of values that are packed at a time, in whole steps of 16 KiB or less. If several groups of rows read
/// them, they come from L2 anyway, and the more there are, the fewer times sums are loaded and stored.
static int64_t valueBlock(int64_t columns, int64_t rows, int64_t keys) {
  if (rows > maxTileBlock.rows)
    return llvm::alignTo(std::min<int64_t>(keys, 256) / 2, tileSize);
  return columns <= 128 ? 2 * tileSize : tileSize;
}

/// Emits `body` for all rows: for as many at a time as the registers of a block hold, then for the rest.
void UnpackedLowering::forTileRows(function_ref<void(Value row, int64_t count)> body) {
  Value whole = e.roundDown(paddedRows, maxTileBlock.rows);
  if (groupRows >= maxTileBlock.rows)
    e.loop(e.index(0), whole, maxTileBlock.rows, [&](Value row) { body(row, maxTileBlock.rows); });
  e.ifElse(e.isLess(whole, paddedRows), [&] { body(whole, tileSize); });
}

/// queryColumns[w][r] = k-pack w of row r of `query`, with zeros for a whole number of steps.
void UnpackedLowering::transposeQueries() {
  int64_t kPacks = cast<MemRefType>(query.getType()).getDimSize(1);
  queryColumns = e.alloc({kPacks, groupRows});
  e.loop(e.index(0), paddedRows, tileSize, [&](Value row) {
    e.loop(e.index(0), e.index(kPacks), tileSize, [&](Value w) {
      SmallVector<Value> vectors;
      for (int64_t i = 0; i < tileSize; ++i)
        vectors.push_back(e.loadVector(query, {e.add(row, i), w}));
      emitTranspose(e, vectors);
      for (auto [i, each] : llvm::enumerate(vectors))
        e.storeVector(each, queryColumns, {e.add(w, i), row});
    });
  });
}

/// Copies the k-packs of `keyBlock` keys from key `first` on to rows of `packed`, and their factors if they have some.
/// The last key stands for those beyond it.
void UnpackedLowering::packKeys(Value packed, Value first, Value factors) {
  int64_t width = kPackElements() * e.lanes() * key.registersPerLoad(), line = key.elementsPerLine();
  Value lastKey = e.sub(keys, e.index(1));
  e.loop(e.index(0), e.index(keyBlock), 1, [&](Value r) {
    Value position = e.add(first, r);
    RowSource::Row row = key.row(e, e.min(position, lastKey));
    for (int64_t column = 0; column < depth; column += width)
      for (auto [i, kPacks] : llvm::enumerate(loadKeyKPacks(row, e.index(column), std::min(width, depth - column))))
        e.storeVector(kPacks, packed, {r, e.index(column / kPackElements() + int64_t(i) * e.lanes())});
    for (int64_t column = 0; column < depth; column += line)
      key.prefetch(e, e.add(position, keyBlock), e.index(column), keys);
    if (factors)
      e.store(row.factor, factors, r);
  });
}

/// Transposes the scores of `keyBlock` keys and stores them from column `first` on.
void UnpackedLowering::storeScores(Value keysByQueries, Value factors, Value first) {
  e.loop(e.index(0), paddedRows, tileSize, [&](Value row) {
    for (int64_t k = 0; k < keyBlock; k += tileSize) {
      SmallVector<Value> vectors;
      for (int64_t i = 0; i < tileSize; ++i)
        vectors.push_back(e.loadVector(keysByQueries, {e.index(k + i), row}));
      emitTranspose(e, vectors);
      Value factor = factors ? e.loadVector(factors, e.index(k)) : Value();
      for (auto [i, each] : llvm::enumerate(vectors))
        e.storeVector(factor ? e.mulf(each, factor) : each, scores, {e.add(row, i), e.add(first, k)});
    }
  });
}

/// scores[r][c] = query[r] · key[c] for all blocks of columns that intersect `visible`.
void UnpackedLowering::computeScoresInTiles(KeyRange visible) {
  int64_t kPacks = cast<MemRefType>(queryColumns.getType()).getDimSize(0);
  // Padded by a cache line, since rows that are powers of two apart share sets of L1.
  Value packed = e.alloc({keyBlock, kPacks + e.lanes()}), keysByQueries = e.alloc({keyBlock, groupRows});
  Value factors = key.hasFactor() ? e.alloc({keyBlock}) : Value(), zero = e.index(0);
  e.loop(e.roundDown(visible.begin, keyBlock), visible.end, keyBlock, [&](Value first) {
    packKeys(packed, first, factors);
    forTileRows([&](Value row, int64_t count) {
      RegisterBlock block = {unsigned(keyBlock), unsigned(count / tileSize)};
      SmallVector<Value> tiles = emitTileProduct(
          e, block, zero, e.index(kPacks), emitZeroTiles(e, block),
          [&](int64_t i, Value k) { return emitTileMemory(e, packed, {e.index(i), k}); },
          [&](Value k, unsigned j) { return emitTileMemory(e, queryColumns, {k, e.add(row, j * tileSize)}); });
      emitStoreTiles(e, block, tiles, keysByQueries, zero, row);
    });
    storeScores(keysByQueries, factors, first);
  });
}

/// Replaces weights by k-packs of rounded weights, at half the column.
void UnpackedLowering::roundWeights(KeyRange visible) {
  int64_t width = kPackElements() * e.lanes();
  // A weight beyond the last column is not that of a key.
  Value end = e.roundUp(visible.end, e.lanes());
  e.loop(e.index(0), rows, 1, [&](Value row) {
    e.loop(e.roundDown(visible.begin, width), visible.end, width, [&](Value column) {
      Value second = e.add(column, e.lanes());
      Value upper = e.select(e.isLess(second, end), e.loadVector(scores, {row, second}), e.splat(0.0));
      e.storeVector(emitRoundToPairs(e, e.loadVector(scores, {row, column}), upper), scores,
                    {row, e.div(column, kPackElements())});
    });
  });
}

/// Copies k-packs of values from `firstKPack` on to the rows of `packed`. Those outside of `visible` are 0.
void UnpackedLowering::packValues(Value packed, KeyRange visible, Value firstKPack) {
  int64_t lanes = e.lanes(), vectors = llvm::divideCeil(valueDepth, lanes), line = value.elementsPerLine();
  int64_t kPacks = cast<MemRefType>(packed.getType()).getDimSize(0);
  Value begin = e.max(firstKPack, e.div(visible.begin, kPackElements()));
  Value end = e.min(e.add(firstKPack, kPacks), e.ceilDiv(visible.end, kPackElements()));
  auto forColumns = [&](function_ref<void(int64_t vector)> body) {
    for (int64_t v = 0; v < vectors; v += 2)
      body(v);
  };
  auto clear = [&](Value from, Value to) {
    e.loop(from, to, 1, [&](Value k) {
      for (int64_t v = 0; v < vectors; ++v)
        e.storeVector(e.splat(0.0), packed, {k, e.index(v * lanes)});
    });
  };
  clear(e.index(0), e.sub(begin, firstKPack));
  e.loop(begin, end, 1, [&](Value kPack) {
    forColumns([&](int64_t v) {
      unsigned count = std::min<int64_t>(2, vectors - v);
      for (auto [i, each] : llvm::enumerate(loadValueKPacks(kPack, e.index(v * lanes), valueDepth - v * lanes, count)))
        e.storeVector(each, packed, {e.sub(kPack, firstKPack), e.index((v + int64_t(i)) * lanes)});
    });
    for (unsigned s = 0; s < kPackElements(); ++s)
      for (int64_t column = 0; column < valueDepth; column += line)
        value.prefetch(e, e.add(e.mul(kPack, kPackElements()), s + keyBlock), e.index(column), keys);
  });
  // A product reads whole steps.
  Value last = e.sub(end, firstKPack);
  clear(last, e.min(e.index(kPacks), e.roundUp(last, tileSize)));
}

/// sums = weights · values of the keys of `visible`.
void UnpackedLowering::addValuesInTiles(KeyRange visible) {
  int64_t lanes = e.lanes(), vectors = llvm::divideCeil(valueDepth, lanes), mostKeys = op.getScheduleAttr().getCols();
  int64_t kPacks = valueBlock(vectors * lanes, groupRows, mostKeys);
  bool isOneBlock = kPacks * kPackElements() >= mostKeys;
  Value packed = e.alloc({kPacks, vectors * lanes + lanes}), zero = e.index(0);
  if (!isOneBlock)
    e.loop(zero, paddedRows, 1, [&](Value row) {
      for (int64_t v = 0; v < vectors; ++v)
        e.storeVector(e.splat(0.0), sums, {row, e.index(v * lanes)});
    });
  Value begin = e.roundDown(e.div(visible.begin, kPackElements()), tileSize);
  Value end = e.ceilDiv(visible.end, kPackElements());
  e.loop(begin, end, kPacks, [&](Value first) {
    packValues(packed, visible, first);
    // Weights of whole steps around the keys are 0.
    Value count = e.min(e.index(kPacks), e.sub(end, first));
    auto addColumns = [&](Value column, unsigned width) {
      forTileRows([&](Value row, int64_t blockRows) {
        RegisterBlock block = {unsigned(blockRows), width};
        SmallVector<Value> tiles = emitTileProduct(
            e, block, zero, count, isOneBlock ? emitZeroTiles(e, block) : emitLoadTiles(e, block, sums, row, column),
            [&](int64_t i, Value k) { return emitTileMemory(e, scores, {e.add(row, i), e.add(first, k)}); },
            [&](Value k, unsigned j) { return emitTileMemory(e, packed, {k, e.add(column, j * tileSize)}); });
        emitStoreTiles(e, block, tiles, sums, row, column);
      });
    };
    int64_t pairs = vectors / 2 * 2;
    e.loop(zero, e.index(pairs * lanes), 2 * lanes, [&](Value column) { addColumns(column, 2); });
    if (pairs < vectors)
      addColumns(e.index(pairs * lanes), 1);
  });
}
