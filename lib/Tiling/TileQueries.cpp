//===- TileQueries.cpp - Tile attention into parallel tasks -------------------===//
//
// Tiles attention over batch, head and chunks of queries through its TilingInterface. It runs before TileKeys, which
// requires a single batch and head.
//
//===----------------------------------------------------------------------===//
#include "HeadSections.h"
#include "OutputEpilogue.h"
#include "SplitKV.h"
#include "WorkList.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/Transforms/TileUsingInterface.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Support/CPUTarget.h"
#include "saccade/Tiling/Passes.h"
#include "llvm/Support/Debug.h"
#include <numeric>

namespace saccade {
#define GEN_PASS_DEF_TILEQUERIES
#include "saccade/Tiling/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

/// The number of queries per chunk: the smallest number of chunks of at most `rows` queries, evenly sized, rounded up
/// to row groups if `rows` is a multiple of them, so that only the last chunk has a partial group.
static OpFoldResult chunkSize(OpBuilder &b, Location loc, OpFoldResult queries, int64_t rows) {
  AffineExpr n, chunks;
  bindSymbols(b.getContext(), n, chunks);
  auto atLeast = [&](int64_t bound, OpFoldResult value) {
    auto map = AffineMap::get(0, 1, {n, getAffineConstantExpr(bound, b.getContext())}, b.getContext());
    return affine::makeComposedFoldedAffineMax(b, loc, map, {value});
  };
  // Without queries there are no chunks, but the divisor must be nonzero.
  OpFoldResult count = atLeast(1, affine::makeComposedFoldedAffineApply(b, loc, n.ceilDiv(rows), {queries}));
  int64_t group = std::gcd(rows, rowGroup);
  AffineExpr even = n.ceilDiv(chunks).ceilDiv(group) * group;
  OpFoldResult size = atLeast(group, affine::makeComposedFoldedAffineApply(b, loc, even, {queries, count}));
  // The minimum is the size, and makes its bound evident (findUpperBound).
  auto bounded = AffineMap::get(0, 1, {n, getAffineConstantExpr(rows, b.getContext())}, b.getContext());
  return affine::makeComposedFoldedAffineMin(b, loc, bounded, {size});
}

int64_t saccade::queriesPerTask(MLIRContext *context, int64_t queries, attn::ScheduleAttr schedule) {
  OpBuilder b(context);
  OpFoldResult size = chunkSize(b, b.getUnknownLoc(), b.getIndexAttr(queries), schedule.getRows());
  return *getConstantIntValue(size);
}

namespace {

/// Tiles one attention. The functions return the values that replace its results.
struct QueryTiling {
  using Results = FailureOr<SmallVector<Value>>;

  RewriterBase &rewriter;
  attn::AttentionOp op;
  bool gpu;
  std::optional<OutputEpilogue> epilogue;

  Results tile() {
    if (!op.getScheduleAttr())
      return op.emitOpError() << "has no schedule, expected attn-assign-schedule to run first";
    if (op.getSplitKvAttr() && op.getSplitKvAttr().getAll())
      return tileInBlocks(rewriter);
    Value isSplitKV = isSplit(rewriter);
    std::optional<int64_t> known = isSplitKV             ? getConstantIntValue(isSplitKV)
                                   : op.getSplitKvAttr() ? std::nullopt
                                                         : std::optional<int64_t>(0);
    DEBUG_WITH_TYPE("attn-tile-queries", llvm::dbgs() << op.getLoc() << ": "
                                                      << (!known   ? "both variants, chosen at run time"
                                                          : *known ? "split-KV"
                                                                   : "tiled by queries")
                                                      << '\n');
    if (known && *known == 0)
      op.removeSplitKvAttr();
    if (!known || *known == 0)
      return op.isRagged() ? tileRagged(rewriter) : tileByQueries(known ? nullptr : isSplitKV);
    SmallVector<Value> inits;
    if (failed(tensor::getOrCreateDestinations(rewriter, op.getLoc(), op, inits)))
      return op.emitOpError() << "has results of unknown shape, expected shapes derived from the operands";
    Sequences sequences(rewriter, op, gpu);
    return splitKV(rewriter, sequences, /*isUsed=*/nullptr, inits);
  }

  SmallVector<Value> splitKV(OpBuilder &b, Sequences &sequences, Value isUsed, ValueRange inits) {
    return tileSplitKV(b, op, sequences, isUsed, inits, /*onDevice=*/gpu, epilogue ? &*epilogue : nullptr);
  }

  /// Split-KV for blocks of queries, one after another: a query adds the keys in the order of a call of its own.
  Results tileInBlocks(RewriterBase &b) {
    Location loc = op.getLoc();
    SmallVector<Value> inits;
    if (failed(tensor::getOrCreateDestinations(b, loc, op, inits)))
      return op.emitOpError() << "has results of unknown shape, expected shapes derived from the operands";
    auto extent = [&](attn::Dim dim) { return attn::getDimSize(b, loc, op.getQuery(), op.getQueryDims(), dim); };
    OpFoldResult zero = b.getIndexAttr(0), batches = extent(attn::Dim::Batch), heads = extent(attn::Dim::Head),
                 queries = extent(attn::Dim::Seq);
    auto constant = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(b, loc, value); };
    int64_t most = op.getSplitKvAttr().getQueries();
    auto loop = scf::ForOp::create(b, loc, constant(0), getValueOrCreateConstantIndexOp(b, loc, queries),
                                   constant(most), inits);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    AffineExpr first, count;
    bindSymbols(b.getContext(), first, count);
    auto rest = AffineMap::get(0, 2, {count - first, getAffineConstantExpr(most, b.getContext())}, b.getContext());
    OpFoldResult size = affine::makeComposedFoldedAffineMin(b, loc, rest, {loop.getInductionVar(), queries});
    SmallVector<OpFoldResult> offsets = {zero, zero, loop.getInductionVar()}, sizes = {batches, heads, size};
    FailureOr<TilingResult> tile = op.getTiledImplementation(b, offsets, sizes);
    if (failed(tile))
      return failure();
    auto block = cast<attn::AttentionOp>(tile->tiledOps[0]);
    SmallVector<Slice> places;
    SmallVector<Value> parts;
    for (auto [i, whole] : llvm::enumerate(loop.getRegionIterArgs())) {
      SmallVector<OpFoldResult> place, extents;
      if (failed(op.getResultTilePosition(b, i, offsets, sizes, place, extents)))
        return failure();
      places.push_back(wholeSlice(place, extents));
      parts.push_back(places.back().extract(b, loc, whole));
    }
    Sequences sequences(b, block, gpu);
    SmallVector<Value> results = tileSplitKV(b, block, sequences, /*isUsed=*/nullptr, parts, /*onDevice=*/gpu);
    for (auto [result, whole, place] : llvm::zip_equal(results, loop.getRegionIterArgs(), places))
      result = place.insert(b, loc, result, whole);
    scf::YieldOp::create(b, loc, results);
    b.eraseOp(block);
    return SmallVector<Value>(loop.getResults());
  }

  /// Emits the i1 condition that split-KV applies to all sequences. Null if it differs between sequences, or if `op`
  /// has no schedule of split-KV.
  Value isSplit(OpBuilder &b) {
    if (!op.getSplitKvAttr() || op.getCuSeqlensQ())
      return nullptr;
    OpFoldResult queries = attn::getDimSize(b, op.getLoc(), op.getQuery(), op.getQueryDims(), attn::Dim::Seq);
    return usesSplitKV(b, op, getValueOrCreateConstantIndexOp(b, op.getLoc(), queries));
  }

  /// Emits one task for every head and every item of the work list, a chunk of queries of one sequence. Sequences that
  /// split-KV applies to have no items there.
  Results tileRagged(RewriterBase &b) {
    Location loc = op.getLoc();
    SmallVector<Value> inits;
    if (failed(tensor::getOrCreateDestinations(b, loc, op, inits)))
      return op.emitOpError() << "has results of unknown shape, expected shapes derived from the operands";
    int64_t rows = op.getScheduleAttr().getRows();
    auto apply = [&](OpBuilder &b, AffineExpr expression, ArrayRef<Value> operands) {
      OpFoldResult result = affine::makeComposedFoldedAffineApply(b, loc, expression, getAsOpFoldResult(operands));
      return getValueOrCreateConstantIndexOp(b, loc, result);
    };
    AffineExpr x, y;
    bindSymbols(b.getContext(), x, y);

    Sequences sequences(b, op, gpu);
    auto sizeOfChunk = [&](OpBuilder &b, Value queries) {
      return getValueOrCreateConstantIndexOp(b, loc, chunkSize(b, loc, queries, rows));
    };
    // A sequence has at most one chunk that is not full.
    Value capacity = apply(b, x.floorDiv(rows) + y, {sequences.total(b, attn::Role::Query), sequences.count});
    WorkList list = listItems(
        b, loc, sequences.count, capacity, gpu,
        [&](OpBuilder &b, Value i) -> Value {
          Value queries = sequences.length(b, attn::Role::Query, i);
          Value chunks = apply(b, x.ceilDiv(y), {queries, sizeOfChunk(b, queries)});
          if (!op.getSplitKvAttr())
            return chunks;
          Value none = arith::ConstantIndexOp::create(b, loc, 0);
          return arith::SelectOp::create(b, loc, usesSplitKV(b, op, queries), none, chunks).getResult();
        },
        [&](OpBuilder &b, Value i) -> Value {
          Value queries = sequences.length(b, attn::Role::Query, i), maxQueries = sizeOfChunk(b, queries);
          Value chunk = arith::MinSIOp::create(b, loc, queries, maxQueries);
          return arith::MulIOp::create(b, loc, chunk, sequences.length(b, attn::Role::Key, i));
        });
    Value heads = getValueOrCreateConstantIndexOp(
        b, loc, attn::getDimSize(b, loc, op.getQuery(), op.getQueryDims(), attn::Dim::Head));
    std::optional<HeadSections> sections;
    if (gpu)
      sections.emplace(b, op, heads, list.count, sequences.total(b, attn::Role::Key));
    Value tasks = arith::MulIOp::create(b, loc, list.count, heads);
    auto loop = scf::ForallOp::create(b, loc, ArrayRef<OpFoldResult>{getAsOpFoldResult(tasks)}, inits,
                                      attn::taskMapping(b.getContext(), 1));

    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value task = loop.getInductionVar(0);
    // The head is the slow dimension of threads, which take consecutive tasks: all heads of the longest sequence would
    // unbalance the load. Chunks of a sequence are consecutive, because they read the same keys.
    auto [head, itemOfHead] = sections ? sections->item(b, loc, task)
                                       : HeadSections::Item{arith::DivUIOp::create(b, loc, task, list.count),
                                                            arith::RemUIOp::create(b, loc, task, list.count)};
    auto [number, chunk, isItem] = list.item(b, loc, itemOfHead);
    Value queries = sequences.length(b, attn::Role::Query, number), size = sizeOfChunk(b, queries);
    Value position = arith::MulIOp::create(b, loc, chunk, size);
    size = arith::MinSIOp::create(b, loc, size, arith::SubIOp::create(b, loc, queries, position));
    if (isItem)
      size = arith::SelectOp::create(b, loc, isItem, size, arith::ConstantIndexOp::create(b, loc, 0));

    // The result offsets are emitted before the ops that compute the results, so that these can be written in place.
    Value row = apply(b, x + y, {position, sequences.start(b, attn::Role::Query, number)});
    attn::AttentionOp sequence = sequences.extract(b, number);
    OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
    SmallVector<OpFoldResult> offsets = {zero, head, position}, sizes = {one, one, size};
    FailureOr<TilingResult> tile = sequence.getTiledImplementation(b, offsets, sizes);
    if (failed(tile))
      return failure();
    cast<attn::AttentionOp>(tile->tiledOps[0]).removeSplitKvAttr();
    for (auto [i, value] : llvm::enumerate(tile->tiledValues)) {
      SmallVector<OpFoldResult> place, extents;
      if (failed(sequence.getResultTilePosition(b, i, offsets, sizes, place, extents)))
        return failure();
      for (auto [dim, offset] : llvm::zip_equal(op.getResultDims(op->getResult(i)), place)) {
        if (dim == attn::Dim::Batch)
          offset = number;
        else if (dim == attn::Dim::Seq)
          offset = row;
      }
      if (epilogue && op->getResult(i) == op.getOutput())
        value = epilogue->emit(b, value, wholeSlice(place, extents));
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToEnd(loop.getTerminator().getBody());
      tensor::ParallelInsertSliceOp::create(b, loc, value, loop.getRegionIterArgs()[i], place, extents,
                                            SmallVector<OpFoldResult>(place.size(), one));
    }
    b.eraseOp(sequence);
    b.setInsertionPointAfter(loop);
    SmallVector<Value> results(loop.getResults());
    if (op.getSplitKvAttr())
      results = splitKV(b, sequences, /*isUsed=*/nullptr, results);
    return results;
  }

  static Slice wholeSlice(ArrayRef<OpFoldResult> offsets, ArrayRef<OpFoldResult> sizes) {
    Slice slice;
    for (auto [offset, size] : llvm::zip_equal(offsets, sizes))
      slice.add(offset, size, IntegerAttr::get(IndexType::get(offset.getContext()), 1));
    return slice;
  }

  /// Applies the epilogue to the output of `tile`, which its task inserts.
  void applyEpilogue(attn::AttentionOp tile) {
    auto insertion = cast<tensor::ParallelInsertSliceOp>(*tile.getOutput().getUsers().begin());
    OpBuilder::InsertionGuard guard(rewriter);
    rewriter.setInsertionPointAfter(tile);
    Slice place = wholeSlice(insertion.getMixedOffsets(), insertion.getMixedSizes());
    Value applied = epilogue->emit(rewriter, tile.getOutput(), place);
    rewriter.modifyOpInPlace(insertion, [&] { insertion.getSourceMutable().assign(applied); });
  }

  /// Replaces a loop over batch, head and chunk of queries by one over work items in the order of `HeadSections`, the
  /// last chunk of a head first: under a causal mask, it has the most keys. Updates `results`.
  scf::ForallOp orderItems(RewriterBase &b, scf::ForallOp loop, MutableArrayRef<Value> results) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(loop);
    Location loc = op.getLoc();
    IndexEmitter e{b, loc};
    SmallVector<Value> ends = getValueOrCreateConstantIndexOp(b, loc, loop.getMixedUpperBound());
    Value step = getValueOrCreateConstantIndexOp(b, loc, loop.getMixedStep().back());
    Value chunks = e.ceilDiv(ends[2], step);
    Value keys =
        getValueOrCreateConstantIndexOp(b, loc, attn::getDimSize(b, loc, op.getKey(), op.getKeyDims(), attn::Dim::Seq));
    HeadSections sections(b, op, e.mul(ends[0], ends[1]), chunks, keys);
    auto ordered = scf::ForallOp::create(b, loc, getAsOpFoldResult(ArrayRef(sections.count)), loop.getOutputs(),
                                         attn::taskMapping(b.getContext(), 1));
    b.eraseOp(ordered.getTerminator());
    b.setInsertionPointToStart(ordered.getBody());
    auto [head, number] = sections.item(b, loc, ordered.getInductionVar(0));
    bool isBatch = isConstantIntValue(ends[0], 1);
    SmallVector<Value> arguments = {isBatch ? e.index(0) : e.div(head, ends[1]), isBatch ? head : e.rem(head, ends[1]),
                                    e.mul(e.sub(e.sub(chunks, e.index(1)), number), step)};
    llvm::append_range(arguments, ordered.getRegionIterArgs());
    b.mergeBlocks(loop.getBody(), ordered.getBody(), arguments);
    for (Value &result : results)
      if (result.getDefiningOp() == loop)
        result = ordered.getResult(cast<OpResult>(result).getResultNumber());
    b.replaceOp(loop, ordered);
    return ordered;
  }

  /// Emits one task per batch, head and chunk of queries. With `isSplitKV` the split-KV variant is emitted in addition;
  /// the unused variant has trip count zero.
  Results tileByQueries(Value isSplitKV) {
    OpFoldResult queries = attn::getDimSize(rewriter, op.getLoc(), op.getQuery(), op.getQueryDims(), attn::Dim::Seq);
    OpFoldResult one = rewriter.getIndexAttr(1);
    scf::SCFTilingOptions options;
    options.setLoopType(scf::SCFTilingOptions::LoopType::ForallOp);
    options.setMapping(attn::taskMapping(rewriter.getContext(), 3).getValue());
    options.setTileSizes({one, one, chunkSize(rewriter, op.getLoc(), queries, op.getScheduleAttr().getRows())});
    FailureOr<scf::SCFTilingResult> tiled =
        scf::tileUsingSCF(rewriter, cast<TilingInterface>(op.getOperation()), options);
    if (failed(tiled))
      return op.emitOpError() << "could not be tiled over batch, head and queries";
    for (Operation *tile : tiled->tiledOps) {
      cast<attn::AttentionOp>(tile).removeSplitKvAttr();
      if (epilogue)
        applyEpilogue(cast<attn::AttentionOp>(tile));
    }
    SmallVector<Value> results = tiled->replacements;
    auto loop = results[0].getDefiningOp<scf::ForallOp>();
    if (gpu && !op.getMask().empty())
      loop = orderItems(rewriter, loop, results);
    if (isSplitKV) {
      rewriter.setInsertionPointAfter(loop);
      Sequences sequences(rewriter, op, gpu);
      results = splitKV(rewriter, sequences, isSplitKV, results);
      rewriter.setInsertionPoint(loop);
      Value none = arith::ConstantIndexOp::create(rewriter, op.getLoc(), 0);
      for (OpOperand &bound : loop.getDynamicUpperBoundMutable())
        bound.set(arith::SelectOp::create(rewriter, op.getLoc(), isSplitKV, none, bound.get()));
    }
    return results;
  }
};

struct TileQueries : saccade::impl::TileQueriesBase<TileQueries> {
  using TileQueriesBase::TileQueriesBase;

  void runOnOperation() override {
    // Attention in a task was tiled before, by a script or a pass of the user.
    SmallVector<attn::AttentionOp> ops;
    getOperation().walk([&](Operation *op) {
      if (auto loop = dyn_cast<scf::ForallOp>(op); loop && !loop.getMapping())
        loop.setMappingAttr(attn::taskMapping(&getContext(), loop.getRank()));
      if (auto attention = dyn_cast<attn::AttentionOp>(op); attention && !op->getParentOfType<scf::ForallOp>())
        ops.push_back(attention);
    });
    IRRewriter rewriter(&getContext());
    for (attn::AttentionOp op : ops)
      if (failed(tileQueries(rewriter, op, gpu)))
        return signalPassFailure();
  }
};

} // namespace

FailureOr<SmallVector<Value>> saccade::tileQueries(RewriterBase &rewriter, attn::AttentionOp op, bool gpu) {
  OpBuilder::InsertionGuard guard(rewriter);
  std::optional<OutputEpilogue> epilogue;
  if (!op.getSplitKvAttr() || !op.getSplitKvAttr().getAll())
    epilogue = OutputEpilogue::take(rewriter, op);
  rewriter.setInsertionPoint(op);
  FailureOr<SmallVector<Value>> results = QueryTiling{rewriter, op, gpu, epilogue}.tile();
  if (failed(results))
    return failure();
  if (epilogue)
    rewriter.replaceOp(epilogue->op, results->front());
  rewriter.replaceOp(op, *results);
  return results;
}
