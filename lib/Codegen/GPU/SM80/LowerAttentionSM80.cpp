//===- LowerAttentionSM80.cpp - Attention on the matrix units of sm_80 --------===//
//
// Four warps share the keys and values of a step; each warp's scores, weights and accumulator stay in registers from one
// product to the next (FlashAttention-2; Dao 2023). Stands before the portable form, which takes what does not fit here.
//
//===----------------------------------------------------------------------===//
#include "../AttentionState.h"
#include "../SharedMemory.h"
#include "MatrixUnit.h"
#include "SharedTile.h"
#include "saccade/Support/Kernels.h"
#include "saccade/Codegen/GPU/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERATTENTIONSM80
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

namespace {

constexpr int64_t warps = threadsPerCTA / 32;

/// The sizes of a kernel.
struct Shape {
  explicit Shape(const AttentionState &state)
      : element(state.element()), rows(state.rows()), depth(state.depth()), valueDepth(state.valueDepth()) {}

  Type element;
  int64_t rows, depth, valueDepth;

  int64_t bands() const { return rows / (16 * warps); } ///< of 16 rows that a warp has
  /// Of a step: 64 where a thread has registers for their scores beside the accumulator.
  int64_t keys() const { return accElements() + 32 * bands() <= 160 ? 64 : 32; }
  int64_t keyTiles() const { return keys() / 8; }
  int64_t valueTiles() const { return SharedTile::paddedColumns(valueDepth) / 8; }
  int64_t accElements() const { return bands() * valueTiles() * 4; }
  int64_t rowsOfThread() const { return 2 * bands(); }
  /// Whether the queries' fragments stay in registers beside everything else.
  bool keepsQueries() const { return bands() * SharedTile::paddedColumns(depth) <= 128; }

  /// A thread has 255 registers; half of them may be the accumulator.
  bool fits() const {
    return (element.isF16() || element.isBF16()) && depth > 0 && valueDepth > 0 && depth <= 256 &&
           rows % (16 * warps) == 0 && rows > 0 && accElements() <= 128;
  }
};

/// The place of a thread in the fragments of a result.
struct Lane {
  Lane(Emitter &e, const Shape &shape) {
    Value thread = e.thread(), lane = e.rem(thread, 32);
    firstRow = e.mul(e.div(thread, 32), 16 * shape.bands());
    group = e.div(lane, 4);
    column = e.mul(e.rem(lane, 4), 2);
  }
  /// Row r of those that the thread holds a part of, behind its first one.
  static int64_t offset(int64_t r) { return r / 2 * 16 + r % 2 * 8; }
  Value row(Emitter &e, int64_t r) const { return e.toIndex(e.add(e.add(firstRow, group), offset(r))); }
  /// Whether it is the first of those that share a row.
  Value isFirst(Emitter &e) const { return e.compare(arith::CmpIPredicate::eq, column, e.i32(0)); }

  Value firstRow; ///< of the warp
  Value group;    ///< of lanes that share rows
  Value column;   ///< the first of two
};

/// Joins what the four lanes of a row have.
Value joinLanes(Emitter &e, Value x, function_ref<Value(Value, Value)> combine) {
  for (int64_t mask : {1, 2})
    x = combine(x, e.exchange(x, mask));
  return x;
}

/// Rewrites one attn.accumulate.
class Step {
public:
  Step(Emitter e, AccumulateOp op, const PrivateState &state, const Shape &shape)
      : e(e), op(op), state(state), shape(shape), lane(this->e, shape),
        query(this->e, op.getQuery(), op.getQueryDims()), key(this->e, op.getKey(), op.getKeyDims()),
        value(this->e, op.getValue(), op.getValueDims()) {}

  void run() {
    int64_t queryBytes = SharedTile::bytes(shape.rows, shape.depth), keyBytes = SharedTile::bytes(shape.keys(), shape.depth);
    Value shared = getDynamicShared(e, queryBytes + keyBytes + SharedTile::bytes(shape.keys(), shape.valueDepth));
    SharedTile queryTile(e, shared, 0, shape.element, shape.rows, shape.depth);
    SharedTile keyTile(e, shared, queryBytes, shape.element, shape.keys(), shape.depth);
    SharedTile valueTile(e, shared, queryBytes + keyBytes, shape.element, shape.keys(), shape.valueDepth);

    FragmentSoftmax softmax(e, op, fragment(), query.rows, key.rows);
    KeyRange tiles = softmax.getTiles(e, shape.keys());
    Value isKeyAligned = key.isAligned(e, 16), isValueAligned = value.isAligned(e, 16);
    e.ifElse(e.isLess(tiles.begin, tiles.end), [&] {
      queryTile.copy(e, query, query.isAligned(e, 16), e.index(0));
      keyTile.copy(e, key, isKeyAligned, e.toIndex(tiles.begin));
      SharedTile::commit(e);
      SmallVector<SmallVector<Value>> kept;
      if (shape.keepsQueries()) {
        SharedTile::wait(e);
        e.barrier();
        kept = loadQueries(queryTile);
      }
      e.loop(tiles.begin, tiles.end, shape.keys(), [&](Value first) {
        // While scores are computed the values are on their way, and while values are summed the next keys.
        SharedTile::wait(e);
        e.barrier();
        valueTile.copy(e, value, isValueAligned, e.toIndex(first));
        SharedTile::commit(e);
        SmallVector<Value> scores = computeScores(queryTile, keyTile, kept);
        SmallVector<Value> factors =
            softmax.apply(e, scores, first, softmax.isFull(e, first, shape.keys()), state, [&](Value max) {
              return joinLanes(e, max, [&](Value x, Value y) { return e.maxf(x, y); });
            });
        SharedTile::wait(e);
        e.barrier();
        Value next = e.add(first, shape.keys());
        e.ifElse(e.isLess(next, tiles.end), [&] {
          keyTile.copy(e, key, isKeyAligned, e.toIndex(next));
          SharedTile::commit(e);
        });
        addValues(valueTile, scores, factors);
      });
      // Another step first overwrites queries and keys, which nobody has read since the last barrier.
    });
    softmax.clearRows(e, state);
  }

private:
  /// Scores lie band by band, then tile by tile of eight keys, four for each.
  Fragment fragment() {
    Fragment result{e.add(lane.firstRow, lane.group), lane.column, {}, {}, {}};
    for (int64_t r = 0; r < shape.rowsOfThread(); ++r)
      result.rows.push_back(Lane::offset(r));
    for (int64_t band = 0; band < shape.bands(); ++band)
      for (int64_t tile = 0; tile < shape.keyTiles(); ++tile)
        for (int64_t i = 0; i < 4; ++i) {
          result.rowOf.push_back(2 * band + i / 2);
          result.columns.push_back(8 * tile + i % 2);
        }
    return result;
  }

  /// All fragments of the queries, by k and then by band.
  SmallVector<SmallVector<Value>> loadQueries(const SharedTile &tile) {
    SmallVector<SmallVector<Value>> all;
    Value address = tile.leftAddress(e, lane.firstRow);
    for (int64_t k = 0; k < shape.depth; k += 16)
      for (int64_t band = 0; band < shape.bands(); ++band)
        all.push_back(tile.left(e, address, 16 * band, k));
    return all;
  }

  /// acc[i] for the four numbers of one tile.
  void multiplyInto(SmallVectorImpl<Value> &acc, int64_t first, ValueRange left, ValueRange right) {
    SmallVector<Value> old(acc.begin() + first, acc.begin() + first + 4);
    llvm::copy(multiply(e, shape.element, left, right, old), acc.begin() + first);
  }

  SmallVector<Value> computeScores(const SharedTile &queryTile, const SharedTile &keyTile,
                                   ArrayRef<SmallVector<Value>> kept) {
    SmallVector<Value> scores(shape.bands() * shape.keyTiles() * 4, e.scalar(0.0));
    Value keyAddress = keyTile.rightAddress(e);
    Value queryAddress = kept.empty() ? queryTile.leftAddress(e, lane.firstRow) : Value();
    for (int64_t k = 0; k < shape.depth; k += 16) {
      SmallVector<SmallVector<Value>> left;
      for (int64_t band = 0; band < shape.bands(); ++band)
        left.push_back(kept.empty() ? queryTile.left(e, queryAddress, 16 * band, k)
                                    : kept[k / 16 * shape.bands() + band]);
      for (int64_t tile = 0; tile < shape.keyTiles(); tile += 2) {
        SmallVector<Value> right = keyTile.right(e, keyAddress, 8 * tile, k);
        for (int64_t band = 0; band < shape.bands(); ++band)
          for (int64_t half : {0, 1})
            multiplyInto(scores, (band * shape.keyTiles() + tile + half) * 4, left[band],
                         ArrayRef(right).slice(2 * half, 2));
      }
    }
    return scores;
  }

  /// acc = factor · acc + weights · values. The result of one product has the layout of the left side of the next.
  void addValues(const SharedTile &valueTile, ArrayRef<Value> weights, ArrayRef<Value> factors) {
    SmallVector<Value> acc;
    for (int64_t i = 0; i < shape.accElements(); ++i) {
      int64_t row = i / (shape.valueTiles() * 4) * 2 + i % 4 / 2;
      acc.push_back(e.mulf(e.load(state.acc, i), factors[row]));
    }
    Value address = valueTile.rightTransposedAddress(e);
    for (int64_t k = 0; k < shape.keys(); k += 16) {
      SmallVector<SmallVector<Value>> left;
      for (int64_t band = 0; band < shape.bands(); ++band) {
        SmallVector<Value> words;
        const Value *first = &weights[(band * shape.keyTiles() + k / 8) * 4];
        for (int64_t i = 0; i < 8; i += 2)
          words.push_back(packWord(e, shape.element, first[i], first[i + 1]));
        left.push_back(words);
      }
      for (int64_t tile = 0; tile < shape.valueTiles(); tile += 2) {
        SmallVector<Value> right = valueTile.rightTransposed(e, address, k, 8 * tile);
        for (int64_t band = 0; band < shape.bands(); ++band)
          for (int64_t half : {0, 1})
            multiplyInto(acc, (band * shape.valueTiles() + tile + half) * 4, left[band],
                         ArrayRef(right).slice(2 * half, 2));
      }
    }
    for (auto [i, x] : llvm::enumerate(acc))
      e.store(x, state.acc, i);
  }

  Emitter e;
  AccumulateOp op;
  const PrivateState &state;
  Shape shape;
  Lane lane;
  GlobalMatrix query, key, value;
};

/// Stores the rows of a thread.
class Finish {
public:
  Finish(Emitter e, FinalizeOp op, const PrivateState &state, const Shape &shape)
      : e(e), op(op), state(state), shape(shape), lane(this->e, shape),
        output(this->e, op.getOutput(), op.getOutputDims()) {}

  void run() {
    std::optional<GlobalMatrix> lse;
    if (op.getLse())
      lse.emplace(e, op.getLse());
    Value isAligned = output.isAligned(e, 4);
    bool hasPairs = shape.valueDepth % 2 == 0 && output.element == shape.element;
    for (int64_t r = 0; r < shape.rowsOfThread(); ++r) {
      Value sum = joinLanes(e, e.load(state.sum, r), [&](Value x, Value y) { return e.addf(x, y); });
      RowResult result = finishRow(e, e.load(state.max, r), sum);
      Value row = lane.row(e, r);
      e.ifElse(e.isLess(row, output.rows), [&] {
        e.ifElse(isAligned, [&] { storeRow(row, r, result, hasPairs); },
                 [&] { storeRow(row, r, result, /*inPairs=*/false); });
        if (!lse)
          return;
        e.ifElse(lane.isFirst(e), [&] {
          LLVM::StoreOp::create(e.b, e.loc, result.lse, lse->address(e, row, e.index(0)));
        });
      });
    }
  }

private:
  void storeRow(Value row, int64_t r, const RowResult &result, bool inPairs) {
    for (int64_t tile = 0; tile < shape.valueTiles(); ++tile) {
      Value column = e.toIndex(e.add(lane.column, 8 * tile));
      SmallVector<Value> pair;
      for (int64_t i : {0, 1}) {
        Value x = e.load(state.acc, (r / 2 * shape.valueTiles() + tile) * 4 + r % 2 * 2 + i);
        // An empty row may hold anything in the accumulator: it is replaced, not multiplied by zero.
        pair.push_back(e.select(result.isEmpty, e.scalar(0.0), e.mulf(x, result.inverse)));
      }
      if (inPairs) {
        guarded(column, [&] {
          Value word = packWord(e, shape.element, pair[0], pair[1]);
          LLVM::StoreOp::create(e.b, e.loc, word, output.address(e, row, column));
        });
        continue;
      }
      for (int64_t i : {0, 1})
        guarded(e.add(column, i), [&] {
          Value x = e.truncate(pair[i], output.element);
          LLVM::StoreOp::create(e.b, e.loc, x, output.address(e, row, e.add(column, i)));
        });
    }
  }

  /// Where the last tile has columns that are not there.
  void guarded(Value column, function_ref<void()> body) {
    if (shape.valueDepth % 16 == 0)
      return body();
    e.ifElse(e.isLess(column, e.index(shape.valueDepth)), body);
  }

  Emitter e;
  FinalizeOp op;
  const PrivateState &state;
  Shape shape;
  Lane lane;
  GlobalMatrix output;
};

struct LowerAttentionSM80 : saccade::impl::LowerAttentionSM80Base<LowerAttentionSM80> {
  void runOnOperation() override {
    FailureOr<SmallVector<AttentionState>> states =
        findStates(getOperation(), [](const AttentionState &state) { return state.isPlain() && Shape(state).fits(); });
    if (failed(states))
      return signalPassFailure();
    for (AttentionState &state : *states) {
      Shape shape(state);
      auto rowAt = [&](Emitter &e, int64_t r) { return Lane(e, shape).row(e, r); };
      auto isFirst = [&](Emitter &e) { return Lane(e, shape).isFirst(e); };
      PrivateState mine = state.privatize("sm_80", shape.accElements(), {shape.rowsOfThread(), rowAt, isFirst});
      OpBuilder b(&getContext());
      for (AccumulateOp step : state.steps) {
        b.setInsertionPoint(step);
        Step({b, step.getLoc(), b.getF32Type()}, step, mine, shape).run();
      }
      b.setInsertionPoint(state.finalize);
      Finish({b, state.finalize.getLoc(), b.getF32Type()}, state.finalize, mine, shape).run();
      state.erase();
    }
  }
};

} // namespace
