//===- AttentionStep.cpp - attn.accumulate on tensor cores --------------------===//
//
// The copies of keys and values overlap with the matmul of the respective other operand. Scores, weights and
// accumulator stay in the registers of a warp between the two matmuls (FlashAttention-2; Dao 2023).
//
//===----------------------------------------------------------------------===//
#include "AttentionStep.h"
#include "../SharedMemory.h"
#include "MMA.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

namespace {

/// Lowers one attn.accumulate.
class TensorCoreStep {
public:
  /// Without `hasResult` the accumulator is not computed.
  TensorCoreStep(const Emitter &e, AccumulateOp op, const PrivateState &state, const AttentionShape &shape,
                 bool hasResult)
      : e(e), op(op), state(state), shape(shape), hasResult(hasResult), lane(this->e, shape),
        query(this->e, op.getQuery(), op.getQueryDims()), key(this->e, op.getKey(), op.getKeyDims()),
        value(this->e, op.getValue(), op.getValueDims()) {}

  void run() {
    int64_t queryBytes = SharedTile::bytes(shape.rows, shape.depth),
            keyBytes = SharedTile::bytes(shape.keys(), shape.depth);
    Value shared = getDynamicShared(e, queryBytes + keyBytes + SharedTile::bytes(shape.keys(), shape.valueDepth));
    SharedTile queryTile(e, shared, 0, shape.element, shape.rows, shape.depth);
    SharedTile keyTile(e, shared, queryBytes, shape.element, shape.keys(), shape.depth);
    SharedTile valueTile(e, shared, queryBytes + keyBytes, shape.element, shape.keys(), shape.valueDepth);

    FragmentScores scoring(e, op, fragment(), query.rows, key.rows, query.heads);
    if (shape.permitsApproximateTanh())
      scoring.permitApproximateTanh();
    FragmentSoftmax softmax(e, scoring, state, Lane::perRow,
                            [&](ArrayRef<Value> factors) { rescaleAccumulator(factors); });
    KeyRange tiles = scoring.getTiles(shape.keys());
    Value exactTiles = softmax.canSpeculate() && !shape.hasBulkKernel ? emitExactTiles() : Value();
    // The log-sum-exp of a row whose largest score has a small bias would have the error of the biases of a tile.
    if (exactTiles && !shape.hasLse)
      scoring.permitInitialScores();
    e.ifElse(e.isLess(tiles.begin, tiles.end), [&] {
      queryTile.copy(e, queryTile.prepare(e, query), e.i32(0));
      SharedTile::Copies keyCopies = keyTile.prepare(e, key), valueCopies = valueTile.prepare(e, value, &keyCopies);
      if (keyCopies.end && valueCopies.end)
        keyCopies.end = valueCopies.end = e.optimizationBarrier(e.min(keyCopies.end, valueCopies.end));
      SmallVector<SmallVector<Value>> kept;
      auto copyKeys = [&](Value first) {
        keyTile.copy(e, keyCopies, first);
        SharedTile::commit(e);
      };
      auto copyValues = [&](Value first) {
        valueTile.copy(e, valueCopies, first);
        SharedTile::commit(e);
      };
      auto copyFirst = [&](Value first) {
        copyKeys(first);
        if (prefetchesValues())
          copyValues(first);
      };
      auto keepQueries = [&](int pending) {
        if (!shape.keepsQueries())
          return;
        SharedTile::wait(e, pending);
        e.barrier();
        kept = loadQueries(queryTile);
      };
      auto computeTile = [&](const KeyTile &tile) {
        // The copy of the values overlaps with the scores, that of the next keys with the accumulation of the values.
        SharedTile::wait(e, prefetchesValues() ? 1 : 0);
        e.barrier();
        if (hasResult && !prefetchesValues())
          copyValues(tile.first);
        Value isFull = tile.isFull();
        auto compute = [&] {
          if (skipsBlocks())
            return computeVisibleScores(scoring, tile.first, isFull, queryTile, keyTile, kept);
          SmallVector<Value> scores = computeScores(scoring, queryTile, keyTile, kept);
          scoring.evaluate(scores, tile.first, isFull);
          return scores;
        };
        // Packed before the copy, which needs registers for addresses.
        SmallVector<Value> words;
        if (exactTiles) {
          words = softmax.applySpeculatively(tile.first, compute, exactTiles,
                                             [&](ArrayRef<Value> weights) { return packWeights(weights); });
        } else {
          SmallVector<Value> scores = compute();
          softmax.applyLazily(scores, tile.first);
          words = packWeights(scores);
        }
        SmallVector<SmallVector<Value>> weights = fragmentsOf(words);
        SharedTile::wait(e);
        e.barrier();
        tile.ifNext(copyKeys);
        if (!hasResult)
          return;
        if (skipsBlocks())
          e.ifElse(isFull, [&] { addValues(valueTile, weights); }, [&] { addBlocks(valueTile, weights); });
        else
          addValues(valueTile, weights);
        if (!prefetchesValues())
          return;
        e.barrier();
        tile.ifNext(copyValues);
      };
      if (scoring.testsTiles()) {
        SharedTile::commit(e);
        keepQueries(0);
        scoring.forEachTile(tiles, shape.keys(), computeTile, copyFirst);
        // There may be no tile that has waited for the queries.
        SharedTile::wait(e);
        e.barrier();
        return;
      }
      scoring.forEachTile(tiles, shape.keys(), computeTile, [&](Value first) {
        copyFirst(first);
        keepQueries(prefetchesValues() ? 1 : 0);
      });
      // No barrier: a following step first overwrites queries and keys, which are not read after the last barrier.
    });
    if (!shape.warpsShareRows)
      clearRows(e, scoring.fragment, query.rows, state);
  }

private:
  /// Whether the values of the next tile are copied as soon as those of this one are not needed. A step of split-KV
  /// takes less time than a copy; the additional barrier costs more than it gains where matmuls take most of the time.
  bool prefetchesValues() const { return shape.warpsShareRows && hasResult; }

  /// The counter of `applySpeculatively`.
  Value emitExactTiles() {
    OpBuilder atStart = OpBuilder::atBlockBegin(&op->getParentOfType<func::FuncOp>().getBody().front());
    Value memory = memref::AllocaOp::create(atStart, e.loc, MemRefType::get({1}, e.b.getI32Type()));
    e.store(e.i32(1), memory, 0);
    return memory;
  }

  /// Whether partial tiles skip blocks of 16 rows × 16 keys. Without a mask, only the last tile is partial.
  bool skipsBlocks() { return !op.getMask().empty() && !shape.hasBulkKernel; }

  /// The bitwise or of a word over the lanes of the warp.
  Value joinLanes(Value word) {
    return NVVM::ReduxOp::create(e.b, e.loc, word.getType(), word, NVVM::ReduxKind::OR, e.i32(-1));
  }

  /// Whether some of the bits `mask` of a word are set, i1.
  Value hasBits(Value word, uint32_t mask) {
    Value bits = e.andi(word, e.i32(static_cast<int32_t>(mask)));
    return e.compare(arith::CmpIPredicate::ne, bits, e.i32(0));
  }

  /// The layout of the scores: by m tile, then by tile of eight keys, four elements each.
  Fragment fragment() {
    Fragment result{e.add(lane.firstRow, lane.group), e.add(lane.column, lane.firstKey), {}, {}, {}};
    for (int64_t r = 0; r < shape.rowsPerThread(); ++r)
      result.rows.push_back(Lane::offset(r));
    for (int64_t mTile = 0; mTile < shape.mTiles(); ++mTile)
      for (int64_t tile = 0; tile < shape.keyTiles(); ++tile)
        for (int64_t i = 0; i < 4; ++i) {
          result.rowOf.push_back(2 * mTile + i / 2);
          result.columns.push_back(8 * tile + i % 2);
        }
    // Masks are evaluated in few tiles, score regions in all.
    if (op.getScore().empty() && op.getWeight().empty())
      result.emit = [&shape = shape](Emitter &e) {
        Lane lane(e, shape, e.optimizationBarrier(e.thread()));
        return std::pair(e.add(lane.firstRow, lane.group), e.add(lane.column, lane.firstKey));
      };
    return result;
  }

  /// All fragments of the queries, by k and then by m tile.
  SmallVector<SmallVector<Value>> loadQueries(const SharedTile &tile) {
    SmallVector<SmallVector<Value>> all;
    Value address = tile.lhsAddress(e, lane.firstRow);
    for (int64_t k = 0; k < shape.depth; k += 16)
      for (int64_t mTile = 0; mTile < shape.mTiles(); ++mTile)
        all.push_back(tile.loadLhs(e, address, 16 * mTile, k));
    return all;
  }

  /// Accumulates lhs · rhs, for two fragments of RHS, into the four elements of acc from each of `first` on.
  void multiplyPair(MutableArrayRef<Value> acc, int64_t first, ValueRange lhs, ArrayRef<Value> rhs) {
    for (int64_t half : {0, 1}) {
      auto sums = acc.slice(first + 4 * half, 4);
      llvm::copy(mmaSync(e, shape.element, lhs, rhs.slice(2 * half, 2), SmallVector<Value>(sums)), sums.begin());
    }
  }

  /// The place of the eight scores of a block, in m tile `mTile` at key `k` (a multiple of 16).
  int64_t blockPlace(int64_t mTile, int64_t k) const { return (mTile * shape.keyTiles() + k / 8) * 4; }

  /// Computes all scores of a full tile, and those of the visible blocks of other tiles. The mask is evaluated before,
  /// when scores do not take registers yet. All warps take the same side; it has no barrier. The words of the mask are
  /// undefined in full tiles.
  SmallVector<Value> computeVisibleScores(FragmentScores &scoring, Value first, Value isFull,
                                          const SharedTile &queryTile, const SharedTile &keyTile,
                                          ArrayRef<SmallVector<Value>> kept) {
    size_t count = shape.mTiles() * shape.keyTiles() * 4, words = llvm::divideCeil(count, 32);
    auto computeAll = [&] {
      SmallVector<Value> results = computeScores(scoring, queryTile, keyTile, kept);
      results.append(words, LLVM::PoisonOp::create(e.b, e.loc, e.b.getI32Type()));
      return results;
    };
    auto computeVisible = [&] {
      SmallVector<Value> visible = scoring.evaluateMask(first);
      SmallVector<Value> results = computeBlocks(scoring, queryTile, keyTile, kept, visible);
      llvm::append_range(results, visible);
      return results;
    };
    SmallVector<Value> results = e.choose(isFull, computeAll, computeVisible);
    SmallVector<Value> scores(ArrayRef(results).drop_back(words));
    scoring.evaluate(scores, first, isFull, ArrayRef(results).take_back(words));
    return scores;
  }

  /// Computes the scores of blocks in which the mask holds for some pair; the others are 0. All lanes of a warp take
  /// the same branches.
  SmallVector<Value> computeBlocks(FragmentScores &scoring, const SharedTile &queryTile, const SharedTile &keyTile,
                                   ArrayRef<SmallVector<Value>> kept, ArrayRef<Value> visible) {
    auto ofWarp = llvm::map_to_vector(visible, [&](Value word) { return joinLanes(word); });
    SmallVector<Value> scores(shape.mTiles() * shape.keyTiles() * 4), initial = scoring.initialScores();
    Value keyAddress = keyTile.rhsAddress(e, lane.firstKey);
    Value queryAddress = kept.empty() ? queryTile.lhsAddress(e, lane.firstRow) : Value();
    for (int64_t key = 0; key < shape.keysPerWarp(); key += 16)
      for (int64_t mTile = 0; mTile < shape.mTiles(); ++mTile) {
        SmallVector<Value> zeros(8, e.scalar(0.0));
        auto multiply = [&] {
          SmallVector<Value> block(ArrayRef(initial).slice(blockPlace(mTile, key), 8));
          for (int64_t k = 0; k < shape.depth; k += 16) {
            SmallVector<Value> lhs = kept.empty() ? queryTile.loadLhs(e, queryAddress, 16 * mTile, k)
                                                  : kept[k / 16 * shape.mTiles() + mTile];
            multiplyPair(block, 0, lhs, keyTile.loadRhs(e, keyAddress, key, k));
          }
          return block;
        };
        int64_t place = blockPlace(mTile, key);
        Value isVisible = hasBits(ofWarp[place / 32], 0xffu << place % 32);
        llvm::copy(e.choose(isVisible, multiply, [&] { return zeros; }), scores.begin() + place);
      }
    return scores;
  }

  SmallVector<Value> computeScores(FragmentScores &scoring, const SharedTile &queryTile, const SharedTile &keyTile,
                                   ArrayRef<SmallVector<Value>> kept) {
    SmallVector<Value> scores = scoring.initialScores();
    Value keyAddress = keyTile.rhsAddress(e, lane.firstKey);
    Value queryAddress = kept.empty() ? queryTile.lhsAddress(e, lane.firstRow) : Value();
    for (int64_t k = 0; k < shape.depth; k += 16) {
      SmallVector<SmallVector<Value>> lhs;
      for (int64_t mTile = 0; mTile < shape.mTiles(); ++mTile)
        lhs.push_back(kept.empty() ? queryTile.loadLhs(e, queryAddress, 16 * mTile, k)
                                   : kept[k / 16 * shape.mTiles() + mTile]);
      for (int64_t tile = 0; tile < shape.keyTiles(); tile += 2) {
        SmallVector<Value> rhs = keyTile.loadRhs(e, keyAddress, 8 * tile, k);
        for (int64_t mTile = 0; mTile < shape.mTiles(); ++mTile)
          multiplyPair(scores, blockPlace(mTile, 8 * tile), lhs[mTile], rhs);
      }
    }
    return scores;
  }

  /// The words of the weights as LHS, by k, then by m tile. The accumulator layout of the scores is the LHS layout of
  /// the second matmul.
  SmallVector<Value> packWeights(ArrayRef<Value> weights) {
    SmallVector<Value> words;
    for (int64_t k = 0; k < shape.keysPerWarp(); k += 16)
      for (int64_t mTile = 0; mTile < shape.mTiles(); ++mTile) {
        const Value *first = &weights[blockPlace(mTile, k)];
        for (int64_t i = 0; i < 8; i += 2)
          words.push_back(packWord(e, shape.element, first[i], first[i + 1]));
      }
    return words;
  }

  /// The fragments that the words of `packWeights` are, by k and then by m tile.
  static SmallVector<SmallVector<Value>> fragmentsOf(ArrayRef<Value> words) {
    SmallVector<SmallVector<Value>> lhs;
    for (; !words.empty(); words = words.drop_front(4))
      lhs.emplace_back(words.take_front(4));
    return lhs;
  }

  void rescaleAccumulator(ArrayRef<Value> factors) {
    if (!hasResult)
      return;
    for (int64_t i = 0; i < shape.accElements(); ++i) {
      Value factor = factors[i / (4 * shape.valueTiles()) * 2 + i % 4 / 2];
      e.store(e.mulf(e.load(state.acc, i), factor), state.acc, i);
    }
  }

  /// The place of the eight elements of the accumulator from tile `tile` of eight columns on.
  int64_t accPlace(int64_t mTile, int64_t tile) const { return (mTile * shape.valueTiles() + tile) * 4; }

  /// Adds the products of one fragment of weights and one of values to the accumulator.
  void addProduct(int64_t mTile, int64_t tile, ValueRange lhs, ArrayRef<Value> rhs) {
    SmallVector<Value> sums;
    for (int64_t i = 0; i < 8; ++i)
      sums.push_back(e.load(state.acc, accPlace(mTile, tile) + i));
    multiplyPair(sums, 0, lhs, rhs);
    for (auto [i, sum] : llvm::enumerate(sums))
      e.store(sum, state.acc, accPlace(mTile, tile) + i);
  }

  /// acc += weights · values.
  void addValues(const SharedTile &valueTile, ArrayRef<SmallVector<Value>> lhs) {
    Value address = valueTile.rhsTransposedAddress(e, lane.firstKey);
    for (int64_t k = 0; k < shape.keysPerWarp(); k += 16)
      for (int64_t tile = 0; tile < shape.valueTiles(); tile += 2) {
        SmallVector<Value> rhs = valueTile.loadRhsTransposed(e, address, k, 8 * tile);
        for (int64_t mTile = 0; mTile < shape.mTiles(); ++mTile)
          addProduct(mTile, tile, lhs[k / 16 * shape.mTiles() + mTile], rhs);
      }
  }

  /// `addValues` for the blocks in which some weight is not 0. The result has the same bits. All lanes of a warp take
  /// the same branches.
  void addBlocks(const SharedTile &valueTile, ArrayRef<SmallVector<Value>> lhs) {
    Value blocks = findBlocks(lhs), address = valueTile.rhsTransposedAddress(e, lane.firstKey);
    for (auto [block, words] : llvm::enumerate(lhs))
      e.ifElse(hasBits(blocks, 1u << block), [&, block = static_cast<int64_t>(block), &words = words] {
        int64_t k = block / shape.mTiles() * 16;
        for (int64_t tile = 0; tile < shape.valueTiles(); tile += 2)
          addProduct(block % shape.mTiles(), tile, words, valueTile.loadRhsTransposed(e, address, k, 8 * tile));
      });
  }

  /// The blocks in which some weight is not 0, as a bit per element of `weights`; the same in all lanes.
  Value findBlocks(ArrayRef<SmallVector<Value>> weights) {
    Value found = e.i32(0);
    for (auto [i, words] : llvm::enumerate(weights)) {
      Value any = words[0];
      for (Value word : ArrayRef(words).drop_front())
        any = e.b.createOrFold<arith::OrIOp>(e.loc, any, word);
      found = e.b.createOrFold<arith::OrIOp>(e.loc, found, e.select(hasBits(any, ~0u), e.i32(1 << i), e.i32(0)));
    }
    return joinLanes(found);
  }

  Emitter e;
  AccumulateOp op;
  const PrivateState &state;
  AttentionShape shape;
  bool hasResult;
  Lane lane;
  GlobalMatrix query, key, value;
};

} // namespace

void device::computeStep(const Emitter &e, AccumulateOp op, const PrivateState &state, const AttentionShape &shape,
                         bool hasResult) {
  TensorCoreStep(e, op, state, shape, hasResult).run();
}
