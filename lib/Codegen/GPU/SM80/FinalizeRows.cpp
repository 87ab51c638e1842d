//===- FinalizeRows.cpp - attn.finalize on fragments --------------------------===//
//
// Four lanes share a row. Their partial sums are reduced once, here, instead of once per tile.
//
//===----------------------------------------------------------------------===//
#include "FinalizeRows.h"
#include "MMA.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

namespace {

/// Stores the rows of a thread.
class RowFinalizer {
public:
  RowFinalizer(const Emitter &e, FinalizeOp op, const PrivateState &state, const AttentionShape &shape)
      : e(e), op(op), state(state), shape(shape), lane(this->e, shape),
        output(this->e, op.getOutput(), op.getOutputDims()) {}

  void run() {
    std::optional<GlobalMatrix> lse;
    if (op.getLse())
      lse.emplace(e, op.getLse());
    SmallVector<GlobalMatrix> others;
    for (Value other : op.getOtherOutputs())
      others.emplace_back(e, other);
    Value isAligned = output.isAligned(e, 4);
    bool hasPairs = shape.valueDepth % 2 == 0 && output.element == shape.element;
    for (int64_t r = 0; r < shape.rowsPerThread(); ++r) {
      Value sum = reduceLanes(e, e.load(state.sum, r), [&](Value x, Value y) { return e.addf(x, y); });
      RowResult result = finalizeRow(e, sum);
      Value row = lane.row(e, r);
      storeOthers(row, r, result, others);
      e.ifElse(e.isLess(row, output.rows), [&] {
        e.ifElse(
            isAligned, [&] { storeRow(row, r, result, hasPairs); },
            [&] { storeRow(row, r, result, /*inPairs=*/false); });
        if (!lse)
          return;
        e.ifElse(lane.isFirst(e), [&] {
          Value x = emitLogSumExp(e, e.load(state.max, r), sum);
          LLVM::StoreOp::create(e.b, e.loc, x, lse->address(e, row, e.index(0)));
        });
      });
    }
  }

private:
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
      SmallVector<Value> pair;
      for (int64_t i : {0, 1}) {
        Value x = e.load(state.acc, (r / 2 * shape.valueTiles() + tile) * 4 + r % 2 * 2 + i);
        pair.push_back(normalize(e, result, x));
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
  Lane lane;
  GlobalMatrix output;
};

} // namespace

void device::finalizeRows(const Emitter &e, FinalizeOp op, const PrivateState &state, const AttentionShape &shape) {
  RowFinalizer(e, op, state, shape).run();
}
