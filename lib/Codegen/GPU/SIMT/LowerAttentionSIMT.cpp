//===- LowerAttentionSIMT.cpp - Attention without tensor cores ----------------===//
//
// A thread computes one query; the CTA stages the keys and values of a tile in shared memory. It runs after the
// tensor-core lowering and handles all attention ops that are left.
//
//===----------------------------------------------------------------------===//
#include "../GlobalMatrix.h"
#include "../KernelFamily.h"
#include "../OutputEpilogue.h"
#include "../RowParts.h"
#include "../SharedMemory.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Support/Kernels.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERATTENTIONSIMT
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

/// The limit of static shared memory, in bytes.
static constexpr int64_t sharedLimit = 48 * 1024;

/// The most threads of a CTA, for kernels that keep a row of accumulators in the registers of a thread.
static constexpr int64_t maxThreads = 256;

/// The keys that are accumulated apart from the state, a multiple of all tile widths. The rounding error of a sum of n
/// keys in sections is that of 16 + 32 + n / 512 roundings instead of n: those in a tile, of tiles, and of sections.
static constexpr int64_t sectionKeys = 512;

namespace {

/// Threads that share a row with split-KV: consecutive lanes of a warp, where lane i takes keys i, i + 8, ...
constexpr int64_t lanesPerRow = 8;

/// Lowers one attn.accumulate. A thread computes one row, or one row for every `threadsPerRow`-th key.
class Step {
public:
  Step(const Emitter &e, AccumulateOp op, const PrivateState &state, int64_t depth, int64_t valueDepth, bool hasResult,
       int64_t threadsPerRow = 1, int64_t threads = threadsPerCTA)
      : e(e), op(op), state(state), depth(depth), valueDepth(valueDepth), hasResult(hasResult),
        threadsPerRow(threadsPerRow), threads(threads), query(this->e, op.getQuery(), op.getQueryDims()),
        key(this->e, op.getKey(), op.getKeyDims()), value(this->e, op.getValue(), op.getValueDims()) {
    // As many keys as fit in shared memory, but at most 16 scores per thread.
    width = threadsPerRow == 1 ? 16 : 64;
    while (width > threadsPerRow && width * (depth + valueDepth) * accumulatorBytes() > sharedLimit)
      width /= 2;
  }

  LogicalResult run() {
    if (width * (depth + valueDepth) * accumulatorBytes() > sharedLimit)
      return op.emitOpError() << "has head sizes " << depth << " and " << valueDepth << ", expected a sum of at most "
                              << sharedLimit / (threadsPerRow * accumulatorBytes()) << " on GPUs";
    row = e.toIndex(e.div(e.thread(), threadsPerRow));
    Value shared = allocateShared(e, e.type, width * (depth + valueDepth));
    sharedKeys = shared;
    sharedValues = e.advance(shared, e.type, static_cast<int32_t>(width * depth));
    loadQuery();
    part = e.rem(e.thread(), threadsPerRow);
    SmallVector<int64_t> columns;
    for (int64_t j = 0; j < scoresPerThread(); ++j)
      columns.push_back(j * threadsPerRow);
    Fragment fragment{e.toI32(row), part, {0}, columns, SmallVector<unsigned>(columns.size(), 0)};
    FragmentScores scoring(e, op, fragment, query.rows, key.rows, query.heads);
    if (op.getFinal() && threadsPerRow > 1)
      loadMaxAndSum();
    computeSections(scoring);
    if (threadsPerRow == 1)
      clearRows(e, fragment, query.rows, state);
    else
      mergeThreads();
    return success();
  }

private:
  int64_t scoresPerThread() const { return width / threadsPerRow; }
  int64_t accumulatorBytes() const { return getScoreType(query.element).getWidth() / 8; }

  Value element(const GlobalMatrix &matrix, Value isInBounds, Value row, Value column) {
    auto read = [&]() -> SmallVector<Value> { return {e.extend(matrix.load(e, row, column))}; };
    return e.choose(isInBounds, read, [&] { return SmallVector<Value>{e.scalar(0.0)}; })[0];
  }

  void loadQuery() {
    queryRow = allocatePrivate(depth);
    Value isRow = e.isLess(row, query.rows);
    e.loop(e.index(0), e.index(depth), 1, [&](Value d) { e.store(element(query, isRow, row, d), queryRow, {d}); });
  }

  /// All threads load the rows [first, first + width) of an operand to shared memory; rows outside of it are 0.
  void loadToShared(const GlobalMatrix &matrix, int64_t columns, Value first, Value shared) {
    e.loop(e.toIndex(e.thread()), e.index(width * columns), threads, [&](Value i) {
      Value from = e.add(first, e.div(i, columns));
      Value isInBounds = e.andi(e.isAtMost(e.index(0), from), e.isLess(from, matrix.rows));
      Value x = element(matrix, isInBounds, from, e.rem(i, columns));
      LLVM::StoreOp::create(e.b, e.loc, x, e.advance(shared, e.type, i));
    });
  }

  /// Sums the keys of each section apart and adds them to the state.
  void computeSections(FragmentScores &scoring) {
    PrivateState section = state;
    if (hasResult)
      section.acc = allocatePrivate(valueDepth);
    // The last of two passes over the keys only reads the sum; a normalizer has none.
    bool addsToSum = !op.getFinal() && !op.getPointwise();
    if (addsToSum)
      section.sum = allocatePrivate(1);
    FragmentSoftmax softmax(e, scoring, section, threadsPerRow);
    KeyRange tiles = scoring.getTiles(width);
    e.loop(scoring.getTiles(sectionKeys).begin, tiles.end, sectionKeys, [&](Value begin) {
      if (hasResult)
        e.loop(e.index(0), e.index(valueDepth), 1, [&](Value c) { e.store(e.scalar(0.0), section.acc, {c}); });
      if (addsToSum)
        e.store(e.scalar(0.0), section.sum, 0);
      Value before = e.load(state.max, 0);
      scoring.forEachTile({e.max(begin, tiles.begin), e.min(e.add(begin, sectionKeys), tiles.end)}, width,
                          [&](const KeyTile &tile) { computeTile(softmax, tile, section); });
      Value max = e.load(state.max, 0);
      Value factor =
          op.getNaturalMax() ? emitRoundedFactor(e, before, max) : e.exp2(e.subf(before, e.zeroIfMinusInfinity(max)));
      if (addsToSum)
        e.store(e.fma(e.load(state.sum, 0), factor, e.load(section.sum, 0)), state.sum, 0);
      if (hasResult)
        e.loop(e.index(0), e.index(valueDepth), 1, [&](Value c) {
          e.store(e.fma(e.load(state.acc, {c}), factor, e.load(section.acc, {c})), state.acc, {c});
        });
    });
  }

  Value allocatePrivate(int64_t elements) {
    OpBuilder::InsertionGuard guard(e.b);
    e.b.setInsertionPointToStart(&op->getParentOfType<func::FuncOp>().getBody().front());
    return memref::AllocaOp::create(e.b, e.loc, MemRefType::get({elements}, e.type));
  }

  Value loadShared(Value shared, Value offset) {
    return LLVM::LoadOp::create(e.b, e.loc, e.type, e.advance(shared, e.type, offset));
  }

  /// Adds a tile to `section`.
  void computeTile(FragmentSoftmax &softmax, const KeyTile &tile, const PrivateState &section) {
    Value first = tile.first;
    e.barrier();
    loadToShared(key, depth, e.toIndex(first), sharedKeys);
    if (hasResult)
      loadToShared(value, valueDepth, e.toIndex(first), sharedValues);
    e.barrier();
    SmallVector<Value> scores(scoresPerThread(), e.scalar(0.0));
    Value own = e.toIndex(part);
    Value firstKey = e.mul(own, depth), firstValue = e.mul(own, valueDepth);
    scores = e.loop(e.index(0), e.index(depth), 1, scores, [&](Value d, ValueRange carried) {
      Value q = e.load(queryRow, {d});
      SmallVector<Value> next;
      Value at = e.add(firstKey, d);
      for (int64_t j = 0; j < scoresPerThread(); ++j)
        next.push_back(e.fma(q, loadShared(sharedKeys, e.add(at, j * threadsPerRow * depth)), carried[j]));
      return next;
    });
    softmax.scoring.evaluate(scores, first, tile.isFull());
    Value factor = softmax.apply(scores, first)[0];
    if (!hasResult)
      return;
    e.loop(e.index(0), e.index(valueDepth), 1, [&](Value c) {
      Value sum, at = e.add(firstValue, c);
      for (int64_t j = 0; j < scoresPerThread(); ++j) {
        Value x = loadShared(sharedValues, e.add(at, j * threadsPerRow * valueDepth));
        sum = sum ? e.fma(scores[j], x, sum) : e.mulf(scores[j], x);
      }
      e.store(e.fma(e.load(section.acc, {c}), factor, sum), section.acc, {c});
    });
  }

  /// Reduces x over the threads that share a row.
  Value reduceThreads(Value x, function_ref<Value(Value, Value)> combine) {
    return e.reduceLanes(x, threadsPerRow, combine);
  }

  /// Loads final maxima and sums from memory. The first thread of a row has its sum, since sums are partial.
  void loadMaxAndSum() {
    e.ifElse(e.isLess(row, query.rows), [&] {
      Value isFirst = e.compare(arith::CmpIPredicate::eq, part, e.i32(0));
      e.store(e.load(op.getMax(), {row}), state.max, 0);
      Value sum = fromRounded(e, op.getNaturalMax(), e.load(op.getMax(), {row}), e.load(op.getSum(), {row}),
                              /*isInverse=*/true);
      e.store(e.select(isFirst, sum, e.scalar(0.0)), state.sum, 0);
    });
  }

  Value totalOfThreads(Value x) {
    return reduceThreads(x, [&](Value x, Value y) { return e.addf(x, y); });
  }

  /// Replaces each element of private memory by its total over the threads that share a row.
  void addOverThreads(Value memory) {
    e.loop(e.index(0), e.index(cast<MemRefType>(memory.getType()).getDimSize(0)), 1,
           [&](Value i) { e.store(totalOfThreads(e.load(memory, {i})), memory, {i}); });
  }

  /// row[i] = row[i] · stateFactor + memory[i] · otherFactor for a row of a part of the state in memory.
  void mergeRowOf(Value part, Value memory, const MergedRow &merged) {
    e.loop(e.index(0), e.index(cast<MemRefType>(memory.getType()).getDimSize(0)), 1, [&](Value i) {
      Value before = e.mulf(e.load(part, {row, i}), merged.stateFactor);
      e.storeShared(e.fma(e.load(memory, {i}), merged.otherFactor, before), part, {row, i});
    });
  }

  /// Merges the partial states of the threads of a row into the state in memory, which one of them writes.
  void mergeThreads() {
    Value max = e.load(state.max, 0), sum = totalOfThreads(e.load(state.sum, 0)), rowMax, argmax;
    addOverThreads(state.acc);
    for (Value tally : state.tallies)
      addOverThreads(tally);
    if (state.rowMax)
      std::tie(rowMax, argmax) = reduceRowMax(e, state, 0, threadsPerRow);
    Value isFirst = e.compare(arith::CmpIPredicate::eq, part, e.i32(0));
    e.ifElse(e.andi(isFirst, e.isLess(row, query.rows)), [&] {
      if (op.getFinal())
        // Weights are multiples of the sum that `loadMaxAndSum` has loaded.
        return mergeRowOf(op.getAcc(), state.acc,
                          {Value(), Value(), e.scalar(1.0), fromRounded(e, op.getNaturalMax(), max, e.scalar(1.0))});
      sum = fromRounded(e, op.getNaturalMax(), max, sum);
      MergedRow merged =
          mergeRow(e, e.load(op.getMax(), {row}), e.load(op.getSum(), {row}), max, sum, op.getNaturalMax());
      merged.otherFactor = fromRounded(e, op.getNaturalMax(), max, merged.otherFactor);
      e.storeShared(merged.max, op.getMax(), {row});
      e.storeShared(merged.sum, op.getSum(), {row});
      mergeRowOf(op.getAcc(), state.acc, merged);
      for (auto [tally, own] : llvm::zip_equal(op.getTallies(), state.tallies))
        mergeRowOf(tally, own, merged);
      if (rowMax)
        mergeRowMax(e, State(op.getDpsInits()), row, rowMax, argmax);
    });
    e.barrier();
  }

  Emitter e;
  AccumulateOp op;
  const PrivateState &state;
  int64_t depth, valueDepth, width;
  bool hasResult;
  int64_t threadsPerRow, threads; ///< threads of a row, and of the CTA
  GlobalMatrix query, key, value;
  Value part; ///< i32, of the row
  Value row, queryRow, sharedKeys, sharedValues;
};

void finalize(Emitter e, FinalizeOp op, const PrivateState &state, int64_t valueDepth) {
  OutputEpilogue epilogue(op);
  GlobalMatrix output(e, op.getOutput(), op.getOutputDims());
  Value row = e.toIndex(e.thread());
  e.ifElse(e.isLess(row, output.rows), [&] {
    RowResult result = finalizeRow(e, e.load(state.sum, 0));
    e.loop(e.index(0), e.index(valueDepth), 1, [&](Value c) {
      Value x = epilogue.apply(e, row, c, normalize(e, result, e.load(state.acc, {c})));
      LLVM::StoreOp::create(e.b, e.loc, e.truncate(x, output.element), output.address(e, row, c));
    });
    if (op.getLse())
      LseResults(e, op).store(e, row, e.load(state.max, 0), e.load(state.sum, 0), /*isRounded=*/true);
    for (auto [part, output] : llvm::zip_equal(state.others, op.getOtherOutputs())) {
      GlobalMatrix to(e, output);
      bool isTally = cast<MemRefType>(output.getType()).getRank() == 2;
      e.loop(e.index(0), e.index(to.columns), 1, [&](Value i) {
        Value x = e.load(part, {i});
        if (isTally)
          x = e.truncate(normalize(e, result, x), to.element);
        LLVM::StoreOp::create(e.b, e.loc, x, to.address(e, row, i));
      });
    }
  });
  epilogue.erase();
}

/// Whether the ops of `state` are all of the kernel that distribute elements over threads.
bool isOnlyOpOfThreads(func::FuncOp kernel, const AttentionState &state) {
  bool hasOther = kernel->hasAttr(familyAttr);
  linalg::GenericOp epilogue = findEpilogue(FinalizeOp(state.finalize).getOutput());
  kernel.walk([&](linalg::LinalgOp op) { hasOther |= op != epilogue && !llvm::is_contained(state.inits, op); });
  return !hasOther;
}

/// One thread a query. A CTA has the usual number of threads, or as many as there are queries.
struct ThreadFamily : KernelFamily {
  bool fits(const AttentionState &) const override { return true; }

  LogicalResult emit(func::FuncOp kernel, AttentionState &state) const override {
    int64_t threads = std::max<int64_t>(threadsPerCTA, llvm::alignTo(state.rows(), 32));
    if (threads > maxThreads || (threads > threadsPerCTA && !isOnlyOpOfThreads(kernel, state)))
      return state.finalize.emitOpError() << "has " << state.rows() << " rows, expected at most "
                                          << (threads > maxThreads ? maxThreads : threadsPerCTA);
    if (threads > threadsPerCTA)
      kernel->setAttr(threadsAttr, IntegerAttr::get(IntegerType::get(kernel.getContext(), 64), threads));
    auto rowAt = [](Emitter &e, int64_t) { return e.toIndex(e.thread()); };
    PrivateState privateState = state.privatize("simt", state.valueDepth(), {1, rowAt});
    OpBuilder b(state.finalize.getContext());
    for (AccumulateOp step : state.steps) {
      b.setInsertionPoint(step);
      // The first of two passes over the keys computes max and sum only.
      bool hasResult = step.getAcc() == state.acc.getResult();
      if (failed(Step({b, step.getLoc(), state.accumulatorType()}, step, privateState, state.depth(),
                      state.valueDepth(), hasResult, /*threadsPerRow=*/1, threads)
                     .run()))
        return failure();
    }
    b.setInsertionPoint(state.finalize);
    finalize({b, state.finalize.getLoc(), state.accumulatorType()}, state.finalize, privateState, state.valueDepth());
    state.erase();
    return success();
  }
};

LogicalResult lowerSplitKVOnThreads(func::FuncOp kernel) {
  SmallVector<AccumulateOp> steps;
  kernel.walk([&](AccumulateOp op) { steps.push_back(op); });
  for (AccumulateOp op : steps) {
    op = computeInParts(op, threadsPerCTA / lanesPerRow);
    OpBuilder b(op);
    Emitter e{b, op.getLoc(), cast<FloatType>(getElementTypeOrSelf(op.getAcc()))};
    int64_t depth = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth);
    int64_t valueDepth = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth);
    PrivateState privateState = emptyPrivateState(e, kernel, op, valueDepth, /*rows=*/1);
    if (failed(Step(e, op, privateState, depth, valueDepth, /*hasResult=*/true, lanesPerRow).run()))
      return failure();
    kernel->setAttr(familyAttr, b.getStringAttr(nameFamily("simt, split-KV", op)));
    eraseStep(op);
  }
  return success();
}

struct LowerAttentionSIMT : saccade::impl::LowerAttentionSIMTBase<LowerAttentionSIMT> {
  void runOnOperation() override {
    if (failed(lowerAttentionSIMT(getOperation())))
      signalPassFailure();
  }
};

} // namespace

LogicalResult saccade::lowerAttentionSIMT(func::FuncOp kernel) {
  return hasStateInMemory(kernel) ? lowerSplitKVOnThreads(kernel)
                                  : LogicalResult(lowerAttentions(kernel, ThreadFamily()));
}
