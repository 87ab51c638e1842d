//===- LowerAccumulate.cpp - One step over keys, in registers -----------------===//
//
// attn.accumulate on buffers becomes: pack the tile, then for each group of rows scores, softmax and
// weighted values by register-blocked products. Stands after bufferization, where memory is explicit.
//
//===----------------------------------------------------------------------===//
#include "Finalize.h"
#include "Microkernel.h"
#include "Pack.h"
#include "Prefetch.h"
#include "ScoreTile.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "llvm/Support/MathExtras.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERACCUMULATE
#include "saccade/Codegen/CPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::cpu;

namespace {

/// Rewrites one attn.accumulate.
class AccumulateLowering {
public:
  AccumulateLowering(Emitter e, AccumulateOp op) : e(e), op(op) {}
  LogicalResult run();

private:
  Emitter e;
  AccumulateOp op;

  // Extents: queries and keys of this tile at run time, head sizes static.
  Value queries, keys;
  int64_t depth, columns;
  // Elements of a word.
  unsigned step;
  // Packed operands and the scores of a row group.
  Value query, key, value, scores;
  std::optional<GroupState> state;
  // What the next step reads of an operand, as positions × depth, and how many of its rows a row of this tile asks for.
  struct PrefetchStream {
    Value matrix, rows, share;
  };
  SmallVector<PrefetchStream> prefetchStreams;
  // Whether this is the first and the last step of a state that is the loop's own; else unset.
  std::optional<LoopState> loop;
  Value isFirst, isLast;

  LogicalResult check();
  Value unpackedValues(Value matrix, function_ref<void()> pack);
  void pack(int64_t maxQueries, int64_t maxKeys, Value signMask);
  Exp2Error weightError();
  void planPrefetch();
  void prefetch(Value tileRow);
  void computeGroup(ScoreTile &tile, Value row);
  void forRowBlocks(Value rows, function_ref<void(Value first, int64_t count, bool isTail)> body);
  struct Block;
  void computePanel(const Block &rows, unsigned vectors, Value panel);
  void storeMaxima(const Block &rows, RegisterBlock block, Value first, Value column, ArrayRef<Value> acc);
  void computeScores(const Block &rows);
  void clearRows(Value row);
  SmallVector<Value> scaledRows(Value row, Value first, RegisterBlock block, Value column);
  void addValues(Value row, Value first, int64_t count, bool isTail, const ColumnRuns &reach);
  void addValueBlock(Value row, Value first, RegisterBlock block, Value column, const ColumnRuns &reach);
};

LogicalResult AccumulateLowering::check() {
  auto accType = cast<MemRefType>(op.getAcc().getType());
  if (!op.getScheduleAttr())
    return op.emitOpError() << "has no schedule";
  if (!accType.hasStaticShape() || accType.getDimSize(0) % rowGroup != 0)
    return op.emitOpError() << "accumulator has type " << accType << ", expected a static multiple of " << rowGroup
                            << " rows";
  if (accType.getDimSize(1) % e.lanes() != 0)
    return op.emitOpError() << "accumulator has " << accType.getDimSize(1) << " columns, expected a multiple of "
                            << e.lanes();
  if (ShapedType::isDynamic(depth))
    return op.emitOpError() << "head size of key is dynamic, expected a static one";
  return success();
}

/// Where weights, or all results, are rounded to 16 bits, weights need no better exponential. Their sum does where
/// someone looks at it: only a quotient loses the error of most weights.
Exp2Error AccumulateLowering::weightError() {
  Type element = getElementTypeOrSelf(op.getQuery());
  std::function<bool(Operation *)> isQuotient = [&](Operation *user) {
    if (isa<memref::SubViewOp>(user)) // where a sink is put
      return llvm::all_of(user->getUsers(), isQuotient);
    if (auto finalize = dyn_cast<FinalizeOp>(user))
      return !finalize.getLse() && finalize.getOthers().empty() &&
             (step > 1 || getElementTypeOrSelf(finalize.getOutput()) == element);
    return isa<AccumulateOp, MergeOp, linalg::FillOp>(user);
  };
  bool isLocal = op.getSum().getDefiningOp<memref::AllocOp>() != nullptr;
  if (!isLocal || !llvm::all_of(op.getSum().getUsers(), isQuotient))
    return Exp2Error::Unit;
  return element.isBF16() ? Exp2Error::BF16 : element.isF16() ? Exp2Error::F16 : Exp2Error::Unit;
}

void AccumulateLowering::pack(int64_t maxQueries, int64_t maxKeys, Value signMask) {
  int64_t panel = 2 * e.lanes(), depthKPacks = llvm::divideCeil(depth, step);
  query = e.alloc({maxQueries, depthKPacks});
  key = e.alloc({int64_t(llvm::divideCeil(maxKeys, panel)), depthKPacks, panel});
  value = e.alloc({int64_t(llvm::divideCeil(maxKeys, step)), columns});
  Value values = emitPositions(e, op.getValue(), op.getValueDims());
  int64_t scoreColumns = llvm::alignTo(maxKeys, std::max<int64_t>(ScoreTile::chunk(e), panel));
  // One register more than needed: rows a power of two apart would fall into the same cache sets.
  scores = e.alloc({rowGroup, scoreColumns + int64_t(e.lanes())});
  state.emplace(e, /*keepsMaxima=*/op.getRowMax() != nullptr);
  emitPackRows(e, emitPositions(e, op.getQuery(), op.getQueryDims()), queries, e.roundUp(queries, rowGroup), query,
               step, signMask);
  emitPackPanels(e, emitPositions(e, op.getKey(), op.getKeyDims()), keys, key, step);
  value = unpackedValues(values, [&] { emitPackColumns(e, values, value, step); });
}

/// Values as they are where they lie as packing would leave them; what `pack` makes of them elsewhere.
Value AccumulateLowering::unpackedValues(Value matrix, function_ref<void()> pack) {
  auto type = cast<MemRefType>(matrix.getType());
  if (step > 1 || type.getElementType() != e.type || type.getDimSize(1) != columns) {
    pack();
    return value;
  }
  auto metadata = memref::ExtractStridedMetadataOp::create(e.b, e.loc, matrix);
  auto is = [&](Value x, int64_t y) {
    return e.b.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::eq, x, e.index(y));
  };
  Value usesPanels =
      e.b.createOrFold<arith::AndIOp>(e.loc, is(metadata.getStrides()[0], columns), is(metadata.getStrides()[1], 1));
  auto layout = StridedLayoutAttr::get(e.b.getContext(), ShapedType::kDynamic, {columns, 1});
  auto common = MemRefType::get({ShapedType::kDynamic, columns}, e.type, layout);
  auto unpacked = [&]() -> SmallVector<Value> {
    SmallVector<OpFoldResult> strides = {e.b.getIndexAttr(columns), e.b.getIndexAttr(1)};
    return {memref::ReinterpretCastOp::create(e.b, e.loc, common, metadata.getBaseBuffer(),
                                              metadata.getConstifiedMixedOffset(), metadata.getConstifiedMixedSizes(),
                                              strides)};
  };
  auto packed = [&]() -> SmallVector<Value> {
    pack();
    return {memref::CastOp::create(e.b, e.loc, common, value)};
  };
  return e.choose(usesPanels, unpacked, packed)[0];
}

/// Finds what the next step reads: its keys and values, and its queries where they are others.
void AccumulateLowering::planPrefetch() {
  NextStep next(e, op);
  auto add = [&](Value operand, DimsAttr dims, Value isActive) {
    Value matrix = next.view(operand);
    if (!matrix)
      return;
    matrix = emitPositions(e, matrix, dims);
    if (ShapedType::isDynamic(cast<MemRefType>(matrix.getType()).getDimSize(1)))
      return;
    Value rows = e.select(isActive, e.size(matrix, 0), e.index(0));
    Value share =
        e.b.createOrFold<arith::DivUIOp>(e.loc, e.add(e.sub(rows, e.index(1)), queries), e.max(queries, e.index(1)));
    prefetchStreams.push_back({matrix, rows, e.select(isActive, share, e.index(0))});
  };
  if (!next.exists)
    return;
  add(op.getKey(), op.getKeyDims(), next.exists);
  add(op.getValue(), op.getValueDims(), next.exists);
  add(op.getQuery(), op.getQueryDims(), e.b.createOrFold<arith::AndIOp>(e.loc, next.exists, next.isNewItem));
}

/// Row `tileRow`'s share of it, and where its result will be.
void AccumulateLowering::prefetch(Value tileRow) {
  for (const PrefetchStream &each : prefetchStreams) {
    Value begin = e.b.createOrFold<arith::MulIOp>(e.loc, tileRow, each.share);
    emitPrefetchRows(e, each.matrix, begin, e.min(e.add(begin, each.share), each.rows));
  }
  if (loop)
    loop->prefetchRows(e, tileRow, e.select(isLast, e.add(tileRow, 1), tileRow));
}

/// Rows of a group in blocks: all at once where the group is (nearly) full, else in small blocks.
void AccumulateLowering::forRowBlocks(Value rows, function_ref<void(Value first, int64_t count, bool isTail)> body) {
  Value isFull = e.isLess(e.index(rowGroup - rowTail), rows);
  e.ifElse(
      isFull, [&] { body(e.index(0), rowGroup, /*isTail=*/false); },
      [&] { e.loop(e.index(0), rows, rowTail, [&](Value first) { body(first, rowTail, /*isTail=*/true); }); });
}

/// Rows of a group that are computed together, and what they see.
struct AccumulateLowering::Block {
  ScoreTile &tile;
  Value row, first; ///< of the tile, where the group begins; of the group
  int64_t count;
  bool isTail;
  const ColumnRuns &reach; ///< columns that some row of the group sees
  KeyRange common;         ///< those that all of them see
};

/// scores[first + i][c] = query[row + first + i] · key[c] for i < count and `vectors` registers of a panel of keys.
void AccumulateLowering::computePanel(const Block &rows, unsigned vectors, Value panel) {
  RegisterBlock block = panelBlock(e.target, rows.isTail);
  block.vectors = vectors;
  Value column = e.mul(panel, 2 * e.lanes());
  for (int64_t offset = 0; offset < rows.count; offset += block.rows) {
    Value scratchRow = e.add(rows.first, offset), tileRow = e.add(rows.row, scratchRow);
    SmallVector<Value> acc(block.rows * block.vectors, e.splat(0.0));
    acc = emitMicrokernel(
        e, block, step, e.index(0), e.index(llvm::divideCeil(depth, step)), acc,
        [&](unsigned i, Value d) { return e.load(query, {e.add(tileRow, i), d}); },
        [&](Value d, unsigned j) { return e.loadVector(key, {panel, d, e.index(j * e.lanes())}); });
    bool isMasked = rows.tile.isMaskedByColumn(), isScored = isMasked && rows.tile.isShort();
    for (unsigned i = 0; i < block.rows; ++i)
      for (unsigned j = 0; j < block.vectors; ++j) {
        Value &score = acc[i * block.vectors + j], at = e.add(column, j * e.lanes());
        if (isScored)
          score = rows.tile.score(score, e.add(tileRow, i), at);
        e.storeVector(score, scores, {e.add(scratchRow, i), at});
      }
    if (isMasked)
      storeMaxima(rows, block, scratchRow, column, acc);
  }
}

/// The maxima of scores while they are in registers. Where a row does not see them all, or the score region is long,
/// they are read again and masked, row by row.
void AccumulateLowering::storeMaxima(const Block &rows, RegisterBlock block, Value first, Value column, ArrayRef<Value> acc) {
  int64_t width = block.vectors * e.lanes();
  Value isVisible = arith::AndIOp::create(
      e.b, e.loc, arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::sle, rows.common.begin, column),
      arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::sle, e.add(column, width), rows.common.end));
  auto update = [&](Value row, function_ref<Value(Value max)> larger) {
    e.storeVector(larger(e.loadVector(state->laneValues, {row, e.index(0)})), state->laneValues, {row, e.index(0)});
  };
  bool isScored = rows.tile.isShort();
  auto again = [&](const KeyRange *within) {
    e.loop(first, e.add(first, block.rows), 1, [&](Value r) {
      update(r, [&](Value max) {
        return rows.tile.maskColumns(r, e.add(rows.row, r), column, width, within, isScored, max);
      });
    });
  };
  auto fromRegisters = [&] {
    for (unsigned i = 0; i < block.rows; ++i)
      update(e.add(first, i), [&](Value max) {
        for (unsigned j = 0; j < block.vectors; ++j)
          max = e.maxf(acc[i * block.vectors + j], max);
        return max;
      });
  };
  e.ifElse(
      isVisible, [&] { isScored ? fromRegisters() : again(nullptr); },
      [&] {
        KeyRange hull = rows.reach.hull(e);
        again(&hull);
      });
}

/// All panels that hold columns of the reach; half a panel at the end where that is enough.
void AccumulateLowering::computeScores(const Block &rows) {
  int64_t panel = 2 * e.lanes();
  rows.reach.forEach(e, [&](KeyRange run) {
    Value begin = e.div(run.begin, panel), end = e.div(e.add(run.end, e.lanes() - 1), panel);
    e.loop(begin, end, 1, [&](Value p) { computePanel(rows, 2, p); });
    e.ifElse(e.isLess(e.mul(end, panel), run.end), [&] { computePanel(rows, 1, end); });
  });
}

/// factor · acc for one block of columns from `column` on, and nothing where there is no accumulator yet.
SmallVector<Value> AccumulateLowering::scaledRows(Value row, Value first, RegisterBlock block, Value column) {
  auto load = [&] {
    SmallVector<Value> acc;
    for (unsigned i = 0; i < block.rows; ++i) {
      Value factor = e.broadcast(e.load(state->factors, {e.add(first, i)}));
      for (unsigned j = 0; j < block.vectors; ++j) {
        Value old = e.loadVector(op.getAcc(), {e.add(e.add(row, first), i), e.add(column, j * e.lanes())});
        acc.push_back(e.mulf(old, factor));
      }
    }
    return acc;
  };
  if (!loop)
    return load();
  SmallVector<Value> zeros(block.rows * block.vectors, e.splat(0.0));
  return e.choose(isFirst, [&] { return zeros; }, load);
}

/// The accumulator of a group that sees nothing yet.
void AccumulateLowering::clearRows(Value row) {
  e.loop(row, e.add(row, rowGroup), 1, [&](Value r) {
    e.loop(e.index(0), e.index(columns), e.lanes(), [&](Value c) { e.storeVector(e.splat(0.0), op.getAcc(), {r, c}); });
  });
}

/// acc[row + first + i][c] = factor · acc + weights · value for one block of columns from `column` on. A word at either
/// end of a run may have a key outside of it, whose weight is 0.
void AccumulateLowering::addValueBlock(Value row, Value first, RegisterBlock block, Value column, const ColumnRuns &reach) {
  SmallVector<Value> acc = scaledRows(row, first, block, column);
  acc = reach.forEach(e, acc, [&](KeyRange run, ValueRange carried) {
    return emitMicrokernel(
        e, block, step, e.div(run.begin, step), e.ceilDiv(run.end, step), SmallVector<Value>(carried),
        [&](unsigned i, Value k) { return e.load(scores, {e.add(first, i), k}); },
        [&](Value k, unsigned j) { return e.loadVector(value, {k, e.add(column, j * e.lanes())}); });
  });
  for (unsigned i = 0; i < block.rows; ++i)
    for (unsigned j = 0; j < block.vectors; ++j)
      e.storeVector(acc[i * block.vectors + j], op.getAcc(),
                    {e.add(e.add(row, first), i), e.add(column, j * e.lanes())});
}

void AccumulateLowering::addValues(Value row, Value first, int64_t count, bool isTail, const ColumnRuns &reach) {
  int64_t vectors = columns / e.lanes();
  // Full column blocks, then one that takes the rest.
  RegisterBlock block = rowBlock(e.target, isTail, vectors);
  int64_t full = vectors / block.vectors * block.vectors;
  auto forRows = [&](RegisterBlock rows, Value column) {
    for (int64_t offset = 0; offset < count; offset += rows.rows)
      addValueBlock(row, e.add(first, offset), rows, column, reach);
  };
  e.loop(e.index(0), e.index(full * e.lanes()), block.vectors * e.lanes(),
         [&](Value column) { forRows(block, column); });
  if (full < vectors)
    forRows(rowBlock(e.target, isTail, vectors - full), e.index(full * e.lanes()));
}

/// Folds the whole tile into the rows [row, row + rowGroup) of the state.
void AccumulateLowering::computeGroup(ScoreTile &tile, Value row) {
  Value rows = e.min(e.sub(queries, row), e.index(rowGroup));
  ColumnRuns reach = tile.reach(row, rows);
  KeyRange common = tile.fullyVisibleKeys(row, rows, reach.hull(e));
  auto compute = [&] {
    for (int64_t r = 0; r < rowGroup; ++r)
      e.storeVector(e.splat(-std::numeric_limits<double>::infinity()), state->laneValues, {e.index(r), e.index(0)});
    forRowBlocks(rows, [&](Value first, int64_t count, bool isTail) {
      computeScores({tile, row, first, count, isTail, reach, common});
    });
    if (!tile.isMaskedByColumn())
      tile.scoreGroup(*state, row, rows, reach);
    tile.softmaxGroup(*state, row, rows, reach, [&](Value r) { prefetch(e.add(row, r)); });
    forRowBlocks(rows, [&](Value first, int64_t count, bool isTail) { addValues(row, first, count, isTail, reach); });
  };
  Value isNonEmpty = reach.isNonEmpty(e);
  if (!loop)
    return e.ifElse(isNonEmpty, compute);
  e.ifElse(isNonEmpty, compute, [&] { e.ifElse(isFirst, [&] { clearRows(row); }); });
  e.ifElse(isLast, [&] { loop->finalizeRows(e, row, e.add(row, rows)); });
}

LogicalResult AccumulateLowering::run() {
  depth = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth);
  if (failed(check()))
    return failure();
  auto accType = cast<MemRefType>(op.getAcc().getType());
  columns = accType.getDimSize(1);
  queries =
      getValueOrCreateConstantIndexOp(e.b, e.loc, getDimSize(e.b, e.loc, op.getQuery(), op.getQueryDims(), Dim::Seq));
  keys = getValueOrCreateConstantIndexOp(e.b, e.loc, getDimSize(e.b, e.loc, op.getKey(), op.getKeyDims(), Dim::Seq));
  int64_t maxKeys = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Seq);
  Type element = getElementTypeOrSelf(op.getQuery());
  step = e.target.packingFactor(element, element);
  auto [signMask, scale] = emitSplitScale(e, op, step);
  planPrefetch();
  pack(accType.getDimSize(0), ShapedType::isDynamic(maxKeys) ? op.getScheduleAttr().getCols() : maxKeys, signMask);
  ScoreTile tile(e, op, scores, scale, step, weightError(), keys);
  loop = LoopState::find(op);
  if (loop) {
    isFirst = loop->isFirstStep(e);
    isLast = loop->isLastStep(e);
  }
  e.loop(e.index(0), queries, rowGroup, [&](Value row) { computeGroup(tile, row); });
  if (loop)
    loop->removeFinalized(e, op.getQuery(), *op.getQueryDims().position(Dim::Seq));
  setKernelFamily(e, op, step, "blocked");
  return failure(tile.failed);
}

struct LowerAccumulate : saccade::impl::LowerAccumulateBase<LowerAccumulate> {
  using LowerAccumulateBase::LowerAccumulateBase;

  void runOnOperation() override {
    const CPUTarget *cpu = requireCPUTarget(getOperation(), target);
    if (!cpu)
      return signalPassFailure();
    SmallVector<AccumulateOp> ops;
    getOperation().walk([&](AccumulateOp op) { ops.push_back(op); });
    for (AccumulateOp op : ops) {
      OpBuilder b(op);
      FloatType type = cast<ScoringOpInterface>(op.getOperation()).getScoreType();
      if (failed(AccumulateLowering({b, op.getLoc(), *cpu, type}, op).run()))
        return signalPassFailure();
      op.erase();
    }
  }
};

} // namespace
