//===- FinalizeRows.cpp - attn.finalize on fragments --------------------------===//
//
// Four lanes share a row. Their partial sums are reduced once, here, instead of once per tile.
//
//===----------------------------------------------------------------------===//
#include "FinalizeRows.h"
#include "../OutputEpilogue.h"
#include "MMA.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

namespace {

/// Stores the rows of a thread.
class RowFinalizer {
public:
  RowFinalizer(const Emitter &e, FinalizeOp op, const PrivateState &state, const AttentionShape &shape,
               const std::optional<RowStaging> &staging, Value thread, bool isOpaque)
      : e(e), op(op), state(state), shape(shape), staging(staging), thread(thread), lane(this->e, shape, thread),
        epilogue(op), output(this->e, op.getOutput(), op.getOutputDims(), isOpaque) {}

  void run() {
    LseResults lse(e, op);
    SmallVector<GlobalMatrix> others;
    for (Value other : op.getOtherOutputs())
      others.emplace_back(e, other);
    Value isAligned = output.isAligned(e, staging ? vectorBytes : 4);
    bool hasPairs = shape.valueDepth % 2 == 0 && output.element == shape.element;
    SmallVector<RowResult> results;
    for (int64_t r = 0; r < shape.rowsPerThread(); ++r) {
      Value sum = reduceLanes(e, e.load(state.sum, r), [&](Value x, Value y) { return e.addf(x, y); });
      RowResult result = finalizeRow(e, sum);
      results.push_back(result);
      Value row = lane.row(e, r);
      storeOthers(row, r, result, others);
      e.ifElse(e.isLess(row, output.rows), [&] {
        if (!staging)
          e.ifElse(
              isAligned, [&] { storeRow(row, r, result, hasPairs); },
              [&] { storeRow(row, r, result, /*inPairs=*/false); });
        if (op.getLse())
          e.ifElse(lane.isFirst(e), [&] { lse.store(e, row, e.load(state.max, r), sum, /*isRounded=*/true); });
      });
    }
    if (staging)
      e.ifElse(
          isAligned, [&] { storeStaged(results); },
          [&] {
            for (auto [r, result] : llvm::enumerate(results)) {
              Value row = lane.row(e, r);
              e.ifElse(e.isLess(row, output.rows), [&, r = r] { storeRow(row, r, result, /*inPairs=*/false); });
            }
          });
    epilogue.erase();
  }

private:
  static constexpr int64_t vectorBytes = 16, boxRowBytes = 128;

  /// Stores the rows of a warp through shared memory, so that a lane stores 16 bytes and eight lanes a part of a row: a
  /// lane holds four bytes of each tile, whose stores would touch a part of eight rows each.
  void storeStaged(ArrayRef<RowResult> results) {
    constexpr int64_t vectors = boxRowBytes / vectorBytes;
    // Vectors of a row are permuted as by the 128-byte swizzle, against bank conflicts: the place of vector v of row r
    // is that of vector r mod 8 with v in an exclusive or.
    auto place = [&](Value base, int64_t vector, int64_t box, int64_t row) -> Value {
      Value at = arith::XOrIOp::create(e.b, e.loc, base, e.i32(vector * vectorBytes));
      return e.advance(e.sharedPointer(at), e.b.getI8Type(),
                       static_cast<int32_t>(box * staging->boxBytes + row * boxRowBytes));
    };
    auto rowAt = [&](Value row) {
      return e.add(e.add(staging->address, e.mul(row, boxRowBytes)), e.mul(row, vectorBytes));
    };
    Value base = e.add(rowAt(lane.group), e.mul(lane.column, 2));
    for (auto [r, result] : llvm::enumerate(results))
      for (int64_t tile = 0; tile < shape.valueTiles(); ++tile) {
        SmallVector<Value> pair = pairOf(r, tile, result);
        Value word = packWord(e, shape.element, pair[0], pair[1]);
        LLVM::StoreOp::create(e.b, e.loc, word, place(base, tile % vectors, tile / vectors, Lane::offset(r)));
      }
    NVVM::SyncWarpOp::create(e.b, e.loc, e.i32(-1));
    auto type = VectorType::get({4}, e.b.getI32Type());
    // Eight lanes take a row, in steps of four rows.
    Value inWarp = e.rem(thread, 32), vector = e.rem(inWarp, vectors), firstRow = e.div(inWarp, vectors);
    Value at = arith::XOrIOp::create(e.b, e.loc, rowAt(firstRow), e.mul(vector, vectorBytes));
    for (int64_t box = 0; box * vectors < shape.valueTiles(); ++box)
      for (int64_t first = 0; first < 16; first += 32 / vectors) {
        Value row = e.add(firstRow, first), column = e.add(e.mul(vector, 8), box * vectors * 8);
        Value from = place(at, first % vectors, box, first);
        Value words = LLVM::LoadOp::create(e.b, e.loc, type, from, /*alignment=*/vectorBytes);
        Value ofTile = e.toIndex(e.add(lane.firstRow, row)), ofColumn = e.toIndex(column);
        Value exists = e.andi(e.isLess(ofTile, output.rows), e.isLess(ofColumn, e.index(shape.valueDepth)));
        e.ifElse(exists, [&] {
          LLVM::StoreOp::create(e.b, e.loc, words, output.address(e, ofTile, ofColumn), /*alignment=*/vectorBytes);
        });
      }
  }

  /// The results of a lane in a tile of eight columns.
  SmallVector<Value> pairOf(int64_t r, int64_t tile, const RowResult &result) {
    SmallVector<Value> pair;
    for (int64_t i : {0, 1}) {
      Value x = e.load(state.acc, (r / 2 * shape.valueTiles() + tile) * 4 + r % 2 * 2 + i);
      pair.push_back(normalize(e, result, x));
    }
    return pair;
  }

  /// Stores tallies, row maximum and argmax: each lane holds a partial result of the row, the first lane stores.
  void storeOthers(Value row, int64_t r, const RowResult &result, ArrayRef<GlobalMatrix> to) {
    if (to.empty())
      return;
    Value stores = e.andi(lane.isFirst(e), e.isLess(row, output.rows));
    auto store = [&](const GlobalMatrix &matrix, Value column, Value x) {
      e.ifElse(stores, [&] { LLVM::StoreOp::create(e.b, e.loc, x, matrix.address(e, row, column)); });
    };
    for (auto [i, part] : llvm::enumerate(state.others)) {
      if (llvm::is_contained(state.tallies, part)) {
        int64_t count = state.bins(part);
        e.loop(e.index(0), e.index(count), 1, [&, part = part, i = i](Value bin) {
          Value partial = e.load(part, {e.add(bin, r * count)});
          Value x = reduceLanes(e, partial, [&](Value x, Value y) { return e.addf(x, y); });
          store(to[i], bin, e.truncate(normalize(e, result, x), to[i].element));
        });
      } else {
        auto [max, position] = reduceRowMax(e, state, r, /*threads=*/4);
        store(to[i], e.index(0), part == state.argmax ? position : max);
      }
    }
  }

  void storeRow(Value row, int64_t r, const RowResult &result, bool inPairs) {
    for (int64_t tile = 0; tile < shape.valueTiles(); ++tile) {
      Value column = e.toIndex(e.add(lane.column, 8 * tile));
      SmallVector<Value> pair = pairOf(r, tile, result);
      if (inPairs) {
        guarded(column, [&] {
          for (int64_t i : {0, 1})
            pair[i] = epilogue.apply(e, row, e.add(column, i), pair[i]);
          Value word = packWord(e, shape.element, pair[0], pair[1]);
          LLVM::StoreOp::create(e.b, e.loc, word, output.address(e, row, column));
        });
        continue;
      }
      for (int64_t i : {0, 1})
        guarded(e.add(column, i), [&] {
          Value x = epilogue.apply(e, row, e.add(column, i), pair[i]);
          LLVM::StoreOp::create(e.b, e.loc, e.truncate(x, output.element), output.address(e, row, e.add(column, i)));
        });
    }
  }

  /// Guards `body` by the column bound if the last tile is padded.
  void guarded(Value column, function_ref<void()> body) {
    if (shape.valueDepth % 16 == 0)
      return body();
    e.ifElse(e.isLess(column, e.index(shape.valueDepth)), body);
  }

  Emitter e;
  FinalizeOp op;
  const PrivateState &state;
  AttentionShape shape;
  std::optional<RowStaging> staging;
  Value thread;
  Lane lane;
  OutputEpilogue epilogue;
  GlobalMatrix output;
};

} // namespace

void device::finalizeRows(const Emitter &e, FinalizeOp op, const PrivateState &state, const AttentionShape &shape,
                          const std::optional<RowStaging> &staging, Value thread) {
  Emitter emitter = e;
  RowFinalizer(e, op, state, shape, staging, thread ? thread : emitter.thread(), bool(thread)).run();
}
