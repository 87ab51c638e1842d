//===- LowerAttentionSIMT.cpp - Attention on any GPU --------------------------===//
//
// A thread takes one query; a CTA shares the keys and values of a step. Whatever a kernel for matrix units has not taken
// ends up here, so it stands after those.
//
//===----------------------------------------------------------------------===//
#include "../AttentionState.h"
#include "../GlobalMatrix.h"
#include "../SharedMemory.h"
#include "saccade/Support/Kernels.h"
#include "saccade/Codegen/GPU/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERATTENTIONSIMT
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

/// Bytes of shared memory that every GPU gives without being asked.
static constexpr int64_t sharedLimit = 48 * 1024;

namespace {

/// Rewrites one attn.accumulate for the thread of one row.
class Step {
public:
  Step(Emitter e, AccumulateOp op, const PrivateState &state, int64_t depth, int64_t valueDepth, bool hasResult)
      : e(e), op(op), state(state), depth(depth), valueDepth(valueDepth), hasResult(hasResult),
        query(this->e, op.getQuery(), op.getQueryDims()), key(this->e, op.getKey(), op.getKeyDims()),
        value(this->e, op.getValue(), op.getValueDims()) {
    // As many keys as fit, but no more scores than a thread likes to hold.
    width = 16;
    while (width > 1 && width * (depth + valueDepth) * numberBytes() > sharedLimit)
      width /= 2;
  }

  LogicalResult run() {
    if (width * (depth + valueDepth) * numberBytes() > sharedLimit)
      return op.emitOpError() << "has head sizes " << depth << " and " << valueDepth << ", more than a GPU kernel can hold";
    row = e.toIndex(e.thread());
    Value numbers = allocateShared(e, e.type, width * (depth + valueDepth));
    sharedKeys = numbers;
    sharedValues = e.advance(numbers, e.type, static_cast<int32_t>(width * depth));
    loadQuery();
    auto columns = llvm::to_vector(llvm::seq<int64_t>(0, width));
    Fragment fragment{e.thread(), e.i32(0), {0}, columns, SmallVector<unsigned>(width, 0)};
    FragmentSoftmax softmax(e, op, fragment, query.rows, key.rows);
    KeyRange tiles = softmax.getTiles(e, width);
    e.loop(tiles.begin, tiles.end, width, [&](Value first) { computeTile(softmax, first); });
    softmax.clearRows(e, state);
    return success();
  }

private:
  int64_t numberBytes() const { return getScoreType(query.element).getWidth() / 8; }

  Value element(const GlobalMatrix &matrix, Value isThere, Value row, Value column) {
    auto read = [&]() -> SmallVector<Value> {
      Value address = matrix.address(e, row, column);
      return {e.extend(LLVM::LoadOp::create(e.b, e.loc, matrix.element, address))};
    };
    return e.choose(isThere, e.type, read, [&] { return SmallVector<Value>{e.scalar(0.0)}; })[0];
  }

  void loadQuery() {
    OpBuilder::InsertionGuard guard(e.b);
    e.b.setInsertionPointToStart(&op->getParentOfType<func::FuncOp>().getBody().front());
    queryRow = memref::AllocaOp::create(e.b, e.loc, MemRefType::get({depth}, e.type));
    e.b.setInsertionPoint(op);
    Value isRow = e.isLess(row, query.rows);
    e.loop(e.index(0), e.index(depth), 1,
           [&](Value d) { e.store(element(query, isRow, row, d), queryRow, {d}); });
  }

  /// All threads bring the rows [first, first + width) of an operand; what is outside of it is 0.
  void share(const GlobalMatrix &matrix, int64_t columns, Value first, Value shared) {
    e.loop(row, e.index(width * columns), threadsPerCTA, [&](Value i) {
      Value from = e.add(first, e.div(i, columns));
      Value isThere = e.both(e.isAtMost(e.index(0), from), e.isLess(from, matrix.rows));
      Value x = element(matrix, isThere, from, e.rem(i, columns));
      LLVM::StoreOp::create(e.b, e.loc, x, e.advance(shared, e.type, i));
    });
  }

  Value loadShared(Value shared, Value offset) {
    return LLVM::LoadOp::create(e.b, e.loc, e.type, e.advance(shared, e.type, offset));
  }

  void computeTile(FragmentSoftmax &softmax, Value first) {
    e.barrier();
    share(key, depth, e.toIndex(first), sharedKeys);
    if (hasResult)
      share(value, valueDepth, e.toIndex(first), sharedValues);
    e.barrier();
    SmallVector<Value> scores(width, e.scalar(0.0));
    scores = e.loop(e.index(0), e.index(depth), 1, scores, [&](Value d, ValueRange carried) {
      Value q = e.load(queryRow, {d});
      SmallVector<Value> next;
      for (int64_t j = 0; j < width; ++j)
        next.push_back(e.fma(q, loadShared(sharedKeys, e.add(d, j * depth)), carried[j]));
      return next;
    });
    Value factor = softmax.apply(e, scores, first, softmax.isFull(e, first, width), state,
                                 [](Value max) { return max; })[0];
    if (!hasResult)
      return;
    e.loop(e.index(0), e.index(valueDepth), 1, [&](Value c) {
      Value sum = e.mulf(e.load(state.acc, {c}), factor);
      for (int64_t j = 0; j < width; ++j)
        sum = e.fma(scores[j], loadShared(sharedValues, e.add(c, j * valueDepth)), sum);
      e.store(sum, state.acc, {c});
    });
  }

  Emitter e;
  AccumulateOp op;
  const PrivateState &state;
  int64_t depth, valueDepth, width;
  bool hasResult;
  GlobalMatrix query, key, value;
  Value row, queryRow, sharedKeys, sharedValues;
};

void finalize(Emitter e, FinalizeOp op, const PrivateState &state, int64_t valueDepth) {
  GlobalMatrix output(e, op.getOutput(), op.getOutputDims());
  Value row = e.toIndex(e.thread());
  e.ifElse(e.isLess(row, output.rows), [&] {
    RowResult result = finishRow(e, e.load(state.max, 0), e.load(state.sum, 0));
    e.loop(e.index(0), e.index(valueDepth), 1, [&](Value c) {
      // An empty row may hold anything in the accumulator: it is replaced, not multiplied by zero.
      Value x = e.select(result.isEmpty, e.scalar(0.0), e.mulf(e.load(state.acc, {c}), result.inverse));
      LLVM::StoreOp::create(e.b, e.loc, e.truncate(x, output.element), output.address(e, row, c));
    });
    if (op.getLse()) {
      GlobalMatrix lse(e, op.getLse());
      LLVM::StoreOp::create(e.b, e.loc, result.lse, lse.address(e, row, e.index(0)));
    }
    for (auto [part, output] : llvm::zip_equal(state.others, op.getOtherOutputs())) {
      GlobalMatrix to(e, output);
      bool isTally = cast<MemRefType>(output.getType()).getRank() == 2;
      e.loop(e.index(0), e.index(to.columns), 1, [&](Value i) {
        Value x = e.load(part, {i});
        if (isTally)
          x = e.truncate(e.select(result.isEmpty, e.scalar(0.0), e.mulf(x, result.inverse)), to.element);
        LLVM::StoreOp::create(e.b, e.loc, x, to.address(e, row, i));
      });
    }
  });
}

struct LowerAttentionSIMT : saccade::impl::LowerAttentionSIMTBase<LowerAttentionSIMT> {
  void runOnOperation() override {
    FailureOr<SmallVector<AttentionState>> states = findStates(getOperation(), [](const AttentionState &) { return true; });
    if (failed(states))
      return signalPassFailure();
    for (AttentionState &state : *states) {
      if (state.rows() > threadsPerCTA) {
        state.steps.front().emitOpError() << "has " << state.rows() << " rows, expected " << threadsPerCTA << " at most";
        return signalPassFailure();
      }
      auto rowAt = [](Emitter &e, int64_t) { return e.toIndex(e.thread()); };
      PrivateState mine = state.privatize("simt", state.valueDepth(), {1, rowAt});
      OpBuilder b(&getContext());
      for (AccumulateOp step : state.steps) {
        b.setInsertionPoint(step);
        // What a first reading of all keys accumulates nobody asks for.
        bool hasResult = step.getAcc() == state.acc.getResult();
        if (failed(Step({b, step.getLoc(), state.number()}, step, mine, state.depth(), state.valueDepth(), hasResult).run()))
          return signalPassFailure();
      }
      b.setInsertionPoint(state.finalize);
      finalize({b, state.finalize.getLoc(), state.number()}, state.finalize, mine, state.valueDepth());
      state.erase();
    }
  }
};

} // namespace
