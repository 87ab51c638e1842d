//===- LowerAccumulate.cpp - Flash attention step with packed operands --------===//
//
// Lowers attn.accumulate on buffers: packs the tile, then computes scores, softmax and weighted values of each group of
// rows with register-blocked matmuls. Runs after bufferization and LowerUnpackedAccumulate.
//
//===----------------------------------------------------------------------===//
#include "Finalize.h"
#include "Microkernel.h"
#include "Pack.h"
#include "Prefetch.h"
#include "QuantizedScores.h"
#include "ScoreTile.h"
#include "TileProduct.h"
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
  AccumulateLowering(const Emitter &e, AccumulateOp op) : e(e), op(op) {}
  LogicalResult run();

private:
  Emitter e;
  AccumulateOp op;

  // Extents: queries and keys of this tile are dynamic, head sizes static.
  Value queries, keys;
  int64_t depth, columns;
  // How operands are packed and multiplied, of which scores of int8 are an exception; null for none.
  const Product *product = nullptr;
  const ProductTraits *int8 = nullptr;
  int64_t groupRows;
  // Packed operands, scores and weights of a row group, and the sums of a tile's first parts for a register block.
  Value query, key, value, scores, weights, partSums;
  // Set in place of the packed queries and keys if they are rounded to int8.
  std::optional<QuantizedScores> quantized;
  std::optional<GroupState> state;
  // An operand of the next step as positions × depth, and how many of its rows each row of this tile prefetches.
  struct PrefetchStream {
    Value matrix, rows, share;
  };
  SmallVector<PrefetchStream> prefetchStreams;
  // Set if the state is local to a loop over tiles; i1: whether this is its first or last step.
  std::optional<LoopState> loop;
  Value isFirst, isLast;

  LogicalResult check();
  const ProductTraits &traits() const { return product->traits; }
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
  void computePanelInTiles(const Block &rows, unsigned vectors, Value panel);
  void findMaxima(const Block &rows);
  void addTileBlock(Value row, Value first, RegisterBlock block, Value column, const ColumnRuns &visible);
  void addToState(Value row, Value first, RegisterBlock block, Value column, ArrayRef<Value> sums);
  void addValues(Value row, Value first, int64_t count, bool isTail, const ColumnRuns &visible);
  void addValueBlock(Value row, Value first, RegisterBlock block, Value column, const ColumnRuns &visible);
};

LogicalResult AccumulateLowering::check() {
  auto accType = cast<MemRefType>(op.getAcc().getType());
  if (!op.getScheduleAttr())
    return op.emitOpError() << "has no schedule";
  if (!accType.hasStaticShape() || accType.getDimSize(0) % groupRows != 0)
    return op.emitOpError() << "accumulator has type " << accType << ", expected a static multiple of " << groupRows
                            << " rows";
  if (accType.getDimSize(1) % e.lanes() != 0)
    return op.emitOpError() << "accumulator has " << accType.getDimSize(1) << " columns, expected a multiple of "
                            << e.lanes();
  if (ShapedType::isDynamic(depth))
    return op.emitOpError() << "head size of key is dynamic, expected a static one";
  return success();
}

/// If weights or all results are rounded to 16 bits, a less accurate exponential suffices for the weights, provided
/// that their sum is used as a divisor only: errors of weights and sum then mostly cancel. The weights of a normalizer
/// have no sum; those of stick_breaking add up to 1 at most.
Exp2Error AccumulateLowering::weightError() {
  Type element = getElementTypeOrSelf(op.getQuery());
  std::function<bool(Operation *)> isQuotient = [&](Operation *user) {
    if (isa<memref::SubViewOp>(user)) // initialized with a sink or, without a softmax, by a copy
      return llvm::all_of(user->getUsers(), isQuotient);
    if (auto copy = dyn_cast<linalg::CopyOp>(user)) {
      auto into = copy.getOutputs()[0].getDefiningOp<memref::SubViewOp>();
      return op.getStickBreaking() && into && into.getSource() == op.getSum();
    }
    if (auto finalize = dyn_cast<FinalizeOp>(user))
      return !finalize.getLse() && finalize.getOthers().empty() &&
             (traits().roundsWeights() || getElementTypeOrSelf(finalize.getOutput()) == element);
    return isa<AccumulateOp, MergeOp, linalg::FillOp>(user);
  };
  auto ofElement = [&] {
    return element.isBF16() ? Exp2Error::BF16 : element.isF16() ? Exp2Error::F16 : Exp2Error::Unit;
  };
  if (op.getPointwise())
    return traits().roundsWeights() ? ofElement() : Exp2Error::Unit;
  if (op.getStickBreaking() && traits().roundsWeights())
    return ofElement();
  bool isLocal = op.getSum().getDefiningOp<memref::AllocOp>() != nullptr;
  if (!isLocal || !llvm::all_of(op.getSum().getUsers(), isQuotient))
    return Exp2Error::Unit;
  return ofElement();
}

void AccumulateLowering::pack(int64_t maxQueries, int64_t maxKeys, Value signMask) {
  int64_t panel = 2 * e.lanes(), units = product->paddedUnits(depth);
  if (int8) {
    quantized.emplace(e, Product::inVectors(int8->form), maxQueries, maxKeys, depth);
  } else {
    query = e.alloc(product->rowsShape(maxQueries, units));
    key = e.alloc(product->panelsShape(e, llvm::divideCeil(maxKeys, panel), units));
  }
  value = e.alloc(product->columnsShape(product->paddedUnits(maxKeys), columns));
  Value values = emitPositions(e, op.getValue(), op.getValueDims());
  int64_t scoreColumns = llvm::alignTo(maxKeys, std::max<int64_t>(ScoreTile::chunk(e), panel));
  // Padded by one register: row strides that are powers of two cause cache set conflicts.
  scores = e.alloc({groupRows, scoreColumns + int64_t(e.lanes())});
  partSums = e.alloc({groupRows, maxBlockVectors * int64_t(e.lanes())});
  state.emplace(e, groupRows, /*keepsMaxima=*/op.getRowMax() != nullptr);
  product->clearPadding(e, depth, queries, keys, query, key, value);
  Value queryMatrix = emitPositions(e, op.getQuery(), op.getQueryDims());
  Value keyMatrix = emitPositions(e, op.getKey(), op.getKeyDims());
  if (quantized) {
    quantized->pack(e, queryMatrix, queries, keyMatrix, keys, signMask);
  } else {
    product->packRows(e, queryMatrix, queries, e.roundUp(queries, groupRows), query, signMask);
    product->packPanels(e, keyMatrix, keys, key);
  }
  value = unpackedValues(values, [&] { product->packColumns(e, values, value); });
}

/// The values without packing if their layout matches the packed one (tested at run time), otherwise the packed values.
Value AccumulateLowering::unpackedValues(Value matrix, function_ref<void()> pack) {
  auto type = cast<MemRefType>(matrix.getType());
  if (traits().form != ProductForm::MultiplyAdd || type.getElementType() != e.type || type.getDimSize(1) != columns) {
    pack();
    return value;
  }
  auto metadata = memref::ExtractStridedMetadataOp::create(e.b, e.loc, matrix);
  auto is = [&](Value x, int64_t y) {
    return e.b.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::eq, x, e.index(y));
  };
  Value isCompact =
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
  return e.choose(isCompact, unpacked, packed)[0];
}

/// Collects the operands of the next step: keys, values, and the queries of a new work item.
void AccumulateLowering::planPrefetch() {
  NextStep next(e, op);
  auto add = [&](Value operand, DimsAttr dims, Value isActive) {
    Value matrix = next.view(operand);
    if (!matrix)
      return;
    matrix = emitPositions(e, matrix, dims);
    if (ShapedType::isDynamic(cast<MemRefType>(matrix.getType()).getDimSize(1)))
      return;
    // The view has a negative size if lengths leave the next work item without positions.
    Value rows = e.max(e.select(isActive, e.size(matrix, 0), e.index(0)), e.index(0));
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

/// Prefetches the share of row `tileRow` and, in the last step, its output row.
void AccumulateLowering::prefetch(Value tileRow) {
  for (const PrefetchStream &each : prefetchStreams) {
    Value begin = e.b.createOrFold<arith::MulIOp>(e.loc, tileRow, each.share);
    emitPrefetchRows(e, each.matrix, begin, e.min(e.add(begin, each.share), each.rows));
  }
  if (loop)
    loop->prefetchRows(e, tileRow, e.select(isLast, e.add(tileRow, 1), tileRow));
}

/// Splits the rows of a group into blocks: one block if the group is (nearly) full, otherwise blocks of rowTail rows.
void AccumulateLowering::forRowBlocks(Value rows, function_ref<void(Value first, int64_t count, bool isTail)> body) {
  int64_t tail = product->tailRows();
  Value isFull = e.isLess(e.index(groupRows - tail), rows);
  e.ifElse(
      isFull, [&] { body(e.index(0), groupRows, /*isTail=*/false); },
      [&] { e.loop(e.index(0), rows, tail, [&](Value first) { body(first, tail, /*isTail=*/true); }); });
}

/// Rows of a group that are computed together, and their visible columns.
struct AccumulateLowering::Block {
  ScoreTile &tile;
  Value row, first; ///< first row of the group within the tile; first row of the block within the group
  int64_t count;
  bool isTail;
  const ColumnRuns &visible; ///< columns visible to some row of the group
  KeyRange common;           ///< columns visible to all of its rows
};

/// scores[first + i][c] = query[row + first + i] · key[c] for i < count and `vectors` registers of a panel of keys.
void AccumulateLowering::computePanel(const Block &rows, unsigned vectors, Value panel) {
  if (traits().inTiles)
    return computePanelInTiles(rows, vectors, panel);
  RegisterBlock block = product->scoreBlock(e.target, rows.count, rows.isTail);
  block.vectors = vectors;
  Value column = e.mul(panel, 2 * e.lanes());
  for (int64_t offset = 0; offset < rows.count; offset += block.rows) {
    Value scratchRow = e.add(rows.first, offset), tileRow = e.add(rows.row, scratchRow);
    SmallVector<Value> acc = quantized
                                 ? quantized->multiply(e, block, tileRow, panel)
                                 : product->multiplyPanel(e, block, traits().units(depth), query, tileRow, key, panel);
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

/// The same in tile registers; `findMaxima` follows.
void AccumulateLowering::computePanelInTiles(const Block &rows, unsigned vectors, Value panel) {
  RegisterBlock block = {unsigned(rows.count), vectors};
  SmallVector<Value> tiles =
      product->multiplyPanel(e, block, product->paddedUnits(depth), query, e.add(rows.row, rows.first), key, panel);
  emitStoreTiles(e, block, tiles, scores, rows.first, e.mul(panel, 2 * e.lanes()));
}

/// Applies score region and mask to the scores from tile registers, and takes the row maxima.
void AccumulateLowering::findMaxima(const Block &rows) {
  Value end = e.add(rows.first, rows.count);
  e.loop(rows.first, end, 1, [&](Value r) {
    Value max = rows.tile.scoreRow(r, e.add(rows.row, r), rows.visible.hull(e));
    if (op.hasSoftmax())
      e.storeVector(max, state->laneValues, {r, e.index(0)});
  });
}

/// Updates the row maxima from the scores in registers. If some row masks a column, or the score region is long, the
/// scores are reloaded and masked row by row.
void AccumulateLowering::storeMaxima(const Block &rows, RegisterBlock block, Value first, Value column,
                                     ArrayRef<Value> acc) {
  int64_t width = block.vectors * e.lanes();
  Value isVisible = arith::AndIOp::create(
      e.b, e.loc, arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::sle, rows.common.begin, column),
      arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::sle, e.add(column, width), rows.common.end));
  auto update = [&](Value row, function_ref<Value(Value max)> larger) {
    // A normalizer takes no maximum.
    if (!op.hasSoftmax())
      return (void)larger(e.splat(-std::numeric_limits<double>::infinity()));
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
        KeyRange hull = rows.visible.hull(e);
        again(&hull);
      });
}

/// Computes the scores of all panels with visible columns; the last panel of a run may be computed by half.
void AccumulateLowering::computeScores(const Block &rows) {
  int64_t panel = 2 * e.lanes();
  rows.visible.forEach(e, [&](KeyRange run) {
    Value begin = e.div(run.begin, panel), end = e.div(e.add(run.end, e.lanes() - 1), panel);
    e.loop(begin, end, 1, [&](Value p) { computePanel(rows, 2, p); });
    e.ifElse(e.isLess(e.mul(end, panel), run.end), [&] { computePanel(rows, 1, end); });
  });
  if (traits().inTiles && rows.tile.isMaskedByColumn())
    findMaxima(rows);
}

/// acc = factor · acc + sums for one block of columns from `column` on; the sums alone in the first step.
void AccumulateLowering::addToState(Value row, Value first, RegisterBlock block, Value column, ArrayRef<Value> sums) {
  auto store = [&](bool addsOld) {
    for (unsigned i = 0; i < block.rows; ++i) {
      Value factor = addsOld ? e.broadcast(e.load(state->factors, {e.add(first, i)})) : Value();
      for (unsigned j = 0; j < block.vectors; ++j) {
        SmallVector<Value> at = {e.add(e.add(row, first), i), e.add(column, j * e.lanes())};
        Value sum = sums[i * block.vectors + j];
        e.storeVector(addsOld ? e.fma(e.loadVector(op.getAcc(), at), factor, sum) : sum, op.getAcc(), at);
      }
    }
  };
  if (!loop)
    return store(/*addsOld=*/true);
  e.ifElse(isFirst, [&] { store(/*addsOld=*/false); }, [&] { store(/*addsOld=*/true); });
}

/// Clears the accumulator of a group without visible keys in the first step.
void AccumulateLowering::clearRows(Value row) {
  e.loop(row, e.add(row, groupRows), 1, [&](Value r) {
    e.loop(e.index(0), e.index(columns), e.lanes(), [&](Value c) { e.storeVector(e.splat(0.0), op.getAcc(), {r, c}); });
  });
}

/// acc[row + first + i][c] = factor · acc + weights · value for one block of columns from `column` on. The tile is
/// accumulated apart from the state, in parts that end at multiples of `sumLength` for all groups of rows, so that a
/// row has the same sums in every group. The k-packs at the ends of a run may contain a key outside of it, whose weight
/// is 0.
void AccumulateLowering::addValueBlock(Value row, Value first, RegisterBlock block, Value column,
                                       const ColumnRuns &visible) {
  SmallVector<Value> zeros(block.rows * block.vectors, e.splat(0.0));
  KeyRange hull = visible.hull(e);
  int64_t partLength = Product::inVectors(traits().form).partLength();
  Value firstPart = e.roundDown(product->firstUnit(e, hull.begin), partLength);
  Value partsEnd = product->endUnit(e, hull.end), zero = e.index(0);
  e.loop(firstPart, partsEnd, partLength, [&](Value begin) {
    Value end = e.add(begin, partLength);
    SmallVector<Value> part = visible.forEach(e, zeros, [&](KeyRange run, ValueRange carried) {
      Value from = e.max(begin, product->firstUnit(e, run.begin));
      Value to = e.min(end, product->endUnit(e, run.end));
      return product->multiplyColumns(e, block, from, to, SmallVector<Value>(carried), weights, first, value, column);
    });
    Value isFirstPart = e.b.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::eq, begin, firstPart);
    part = e.choose(isFirstPart, [&] { return part; }, [&] { return addBlock(e, block, part, partSums, zero, zero); });
    e.ifElse(
        e.isLess(end, partsEnd), [&] { storeBlock(e, block, part, partSums, zero, zero); },
        [&] { addToState(row, first, block, column, part); });
  });
}

/// The same in tile registers, whose sums go through memory. Keys around a run, in whole steps, have weight 0.
void AccumulateLowering::addTileBlock(Value row, Value first, RegisterBlock block, Value column,
                                      const ColumnRuns &visible) {
  Value zero = e.index(0);
  SmallVector<Value> tiles = visible.forEach(e, emitZeroTiles(e, block), [&](KeyRange run, ValueRange carried) {
    Value from = product->firstUnit(e, run.begin), to = product->endUnit(e, run.end);
    return product->multiplyColumns(e, block, from, to, SmallVector<Value>(carried), weights, first, value, column);
  });
  auto addThroughMemory = [&] {
    emitStoreTiles(e, block, tiles, partSums, zero, zero);
    e.loop(zero, e.index(block.rows), 1, [&](Value r) {
      Value factor = e.broadcast(e.load(state->factors, {e.add(first, r)}));
      for (unsigned j = 0; j < block.vectors; ++j) {
        Value sum = e.loadVector(partSums, {r, e.index(j * tileSize)});
        SmallVector<Value> at = {e.add(e.add(row, first), r), e.add(column, j * e.lanes())};
        e.storeVector(e.fma(e.loadVector(op.getAcc(), at), factor, sum), op.getAcc(), at);
      }
    });
  };
  if (!loop)
    return addThroughMemory();
  e.ifElse(isFirst, [&] { emitStoreTiles(e, block, tiles, op.getAcc(), e.add(row, first), column); }, addThroughMemory);
}

void AccumulateLowering::addValues(Value row, Value first, int64_t count, bool isTail, const ColumnRuns &visible) {
  int64_t vectors = columns / e.lanes();
  // Full column blocks, then one for the remainder.
  auto blockOf = [&](int64_t vectors) { return product->valueBlock(e.target, count, isTail, vectors); };
  RegisterBlock block = blockOf(vectors);
  int64_t full = vectors / block.vectors * block.vectors;
  auto add = traits().inTiles ? &AccumulateLowering::addTileBlock : &AccumulateLowering::addValueBlock;
  auto forRows = [&](RegisterBlock rows, Value column) {
    for (int64_t offset = 0; offset < count; offset += rows.rows)
      (this->*add)(row, e.add(first, offset), rows, column, visible);
  };
  e.loop(e.index(0), e.index(full * e.lanes()), block.vectors * e.lanes(),
         [&](Value column) { forRows(block, column); });
  if (full < vectors)
    forRows(blockOf(vectors - full), e.index(full * e.lanes()));
}

/// Accumulates the tile into the rows [row, row + groupRows) of the state.
void AccumulateLowering::computeGroup(ScoreTile &tile, Value row) {
  Value rows = e.min(e.sub(queries, row), e.index(groupRows));
  ColumnRuns visible = tile.visibleKeys(row, rows);
  KeyRange common = tile.fullyVisibleKeys(row, rows, visible.hull(e));
  auto compute = [&] {
    for (int64_t r = 0; r < groupRows; ++r)
      e.storeVector(e.splat(-std::numeric_limits<double>::infinity()), state->laneValues, {e.index(r), e.index(0)});
    forRowBlocks(rows, [&](Value first, int64_t count, bool isTail) {
      computeScores({tile, row, first, count, isTail, visible, common});
    });
    if (!tile.isMaskedByColumn())
      tile.scoreGroup(*state, row, rows, visible);
    ColumnRuns weighed = tile.softmaxGroup(*state, row, rows, visible, [&](Value r) { prefetch(e.add(row, r)); });
    forRowBlocks(rows, [&](Value first, int64_t count, bool isTail) { addValues(row, first, count, isTail, weighed); });
  };
  Value isNonEmpty = visible.isNonEmpty(e);
  if (!loop)
    return e.ifElse(isNonEmpty, compute);
  e.ifElse(isNonEmpty, compute, [&] { e.ifElse(isFirst, [&] { clearRows(row); }); });
  e.ifElse(isLast, [&] { loop->finalizeRows(e, row, e.add(row, rows)); });
}

LogicalResult AccumulateLowering::run() {
  depth = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth);
  auto accType = cast<MemRefType>(op.getAcc().getType());
  Type element = getElementTypeOrSelf(op.getQuery());
  product = &Product::of(chooseAttentionProduct(e.target, element, accType.getDimSize(0)));
  if (op.getQkTypeAttr())
    int8 = chooseInt8Product(e.target, op.getContext(), traits());
  groupRows = traits().groupRows();
  if (failed(check()))
    return failure();
  columns = accType.getDimSize(1);
  queries =
      getValueOrCreateConstantIndexOp(e.b, e.loc, getDimSize(e.b, e.loc, op.getQuery(), op.getQueryDims(), Dim::Seq));
  keys = getValueOrCreateConstantIndexOp(e.b, e.loc, getDimSize(e.b, e.loc, op.getKey(), op.getKeyDims(), Dim::Seq));
  int64_t maxKeys = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Seq);
  auto [signMask, scale] = emitSplitScale(e, op, int8 ? 1 : traits().kPackElements);
  planPrefetch();
  pack(accType.getDimSize(0), ShapedType::isDynamic(maxKeys) ? op.getScheduleAttr().getCols() : maxKeys, signMask);
  ScoreTile tile(e, op, scores, scale, *product, weightError(), keys);
  tile.allocateWeights();
  weights = tile.getWeights();
  loop = LoopState::find(op);
  if (loop) {
    isFirst = loop->isFirstStep(e);
    isLast = loop->isLastStep(e);
  }
  e.loop(e.index(0), queries, groupRows, [&](Value row) { computeGroup(tile, row); });
  if (loop)
    loop->removeFinalized(e, op.getQuery(), *op.getQueryDims().position(Dim::Seq));
  std::string form = "packed" + (int8 ? ", " + int8->instruction(e.target, /*isF64=*/false) : "");
  setKernelFamily(e, op, traits(), form);
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
    for (AccumulateOp op : ops)
      if (failed(lowerAccumulate(op, *cpu)))
        return signalPassFailure();
  }
};

} // namespace

LogicalResult saccade::lowerAccumulate(AccumulateOp op, const CPUTarget &target, OpBuilder::Listener *listener) {
  OpBuilder b(op, listener);
  FloatType type = cast<ScoringOpInterface>(op.getOperation()).getScoreType();
  if (failed(AccumulateLowering({b, op.getLoc(), target, type}, op).run()))
    return failure();
  op.erase();
  return success();
}
