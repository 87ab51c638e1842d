//===- TileLinalg.cpp - Tile structured ops into parallel tasks ---------------===//
//
// Creates one parallel loop over tiles for each group of structured ops. Like TileQueries it runs before bufferization,
// so that each tile is written in place into the result.
//
//===----------------------------------------------------------------------===//
#include "DequantizedTiles.h"
#include "FusionGroup.h"
#include "UpperBound.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/SCF/Transforms/TileUsingInterface.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Transforms/CSE.h"
#include "saccade/Tiling/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_TILELINALG
#include "saccade/Tiling/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

/// Makes tensor.dim ops on a result read the destination of its op instead. This removes uses that would keep the op
/// alive or make a loop depend on its own result.
static void redirectDimsToDestinations(Operation *root) {
  root->walk([](tensor::DimOp dim) {
    while (auto producer = dim.getSource().getDefiningOp<DestinationStyleOpInterface>())
      dim.getSourceMutable().assign(producer.getTiedOpOperand(cast<OpResult>(dim.getSource()))->get());
  });
}

static void eraseDeadSlices(IRRewriter &rewriter, Operation *loop) {
  SmallVector<tensor::ExtractSliceOp> slices;
  loop->walk([&](tensor::ExtractSliceOp slice) { slices.push_back(slice); });
  for (tensor::ExtractSliceOp slice : llvm::reverse(slices))
    if (slice->use_empty())
      rewriter.eraseOp(slice);
}

/// Creates the loop of a group and replaces the results that are used outside.
static LogicalResult tileGroup(IRRewriter &rewriter, FusionGroup &group) {
  SmallVector<OpFoldResult> sizes = getAsIndexOpFoldResult(rewriter.getContext(), group.tileSizes);
  scf::SCFTileAndFuseOptions options;
  scf::SCFTilingOptions tiling;
  unsigned rank = llvm::count_if(sizes, [](OpFoldResult size) { return !isZeroInteger(size); });
  tiling.setLoopType(scf::SCFTilingOptions::LoopType::ForallOp)
      .setTileSizes(sizes)
      .setMapping(attn::taskMapping(rewriter.getContext(), rank).getValue());
  options.setTilingOptions(tiling);
  options.setFusionControlFn([&](tensor::ExtractSliceOp, OpResult producer,
                                 bool) -> std::optional<scf::SCFTileAndFuseOptions::ControlFnResult> {
    if (!group.members.contains(producer.getOwner()))
      return std::nullopt;
    return scf::SCFTileAndFuseOptions::ControlFnResult{group.kept.contains(producer.getOwner())};
  });
  rewriter.setInsertionPoint(group.root);
  FailureOr<scf::SCFTileAndFuseResult> result =
      scf::tileConsumerAndFuseProducersUsingSCF(rewriter, cast<TilingInterface>(group.root.getOperation()), options);
  if (failed(result))
    return group.root.emitOpError() << "could not be tiled";
  // Slices of fused producers would otherwise become slices of the loop's own results.
  for (LoopLikeOpInterface loop : result->loops)
    eraseDeadSlices(rewriter, loop);
  redirectDimsToDestinations(group.root->getParentOp());
  for (auto [original, replacement] : result->replacements)
    rewriter.replaceAllUsesWith(original, replacement);
  return success();
}

/// Wraps an op without a tiled loop in a loop of one iteration, which is one task.
static void wrap(IRRewriter &rewriter, linalg::LinalgOp op) {
  rewriter.setInsertionPoint(op);
  Location loc = op.getLoc();
  SmallVector<OpFoldResult> zero = {rewriter.getIndexAttr(0)}, one = {rewriter.getIndexAttr(1)};
  SmallVector<Value> inits(op.getDpsInits());
  auto loop = scf::ForallOp::create(rewriter, loc, zero, one, one, inits, attn::taskMapping(rewriter.getContext(), 1));
  rewriter.setInsertionPoint(loop.getTerminator());
  Operation *task = rewriter.clone(*op);
  auto destination = cast<DestinationStyleOpInterface>(task);
  for (auto [i, shared] : llvm::enumerate(loop.getRegionIterArgs()))
    destination.setDpsInitOperand(i, shared);
  rewriter.setInsertionPointToStart(loop.getTerminator().getBody());
  for (auto [result, shared] : llvm::zip_equal(task->getResults(), loop.getRegionIterArgs())) {
    int64_t rank = cast<RankedTensorType>(result.getType()).getRank();
    SmallVector<OpFoldResult> zeros(rank, zero[0]), ones(rank, one[0]);
    tensor::ParallelInsertSliceOp::create(rewriter, loc, result, shared, zeros,
                                          tensor::getMixedSizes(rewriter, loc, result), ones);
  }
  rewriter.replaceOp(op, loop);
}

/// Clones fills and broadcasts for each op that uses them as an init: filling twice is cheaper than a shared tensor
/// outside of all loops.
static void separateInits(IRRewriter &rewriter, Operation *root) {
  SmallVector<linalg::LinalgOp> inits;
  root->walk([&](linalg::LinalgOp op) {
    if (isa<linalg::FillOp, linalg::BroadcastOp>(op) && op.hasPureTensorSemantics())
      inits.push_back(op);
  });
  for (linalg::LinalgOp op : inits) {
    for (OpOperand &use : llvm::make_early_inc_range(op->getUses())) {
      auto user = dyn_cast<DestinationStyleOpInterface>(use.getOwner());
      if (op->hasOneUse() || !user || !user.isDpsInit(&use))
        continue;
      rewriter.setInsertionPoint(user);
      use.set(rewriter.clone(*op)->getResult(0));
    }
  }
}

/// Creates a temporary of the maximum size of a tile, and returns its slice of the size of `slice`. The size must be
/// static, because the workspace of a task is allocated before it runs.
static FailureOr<Value> createTemporary(IRRewriter &rewriter, tensor::ExtractSliceOp slice) {
  SmallVector<int64_t> shape;
  for (auto [size, whole] : llvm::zip_equal(slice.getMixedSizes(), slice.getSourceType().getShape())) {
    std::optional<int64_t> bound = findUpperBound(size);
    // A slice is at most as large as its source.
    if (!bound && !ShapedType::isDynamic(whole))
      bound = whole;
    if (!bound)
      return slice.emitOpError() << "requires a temporary of unbounded size, expected a static bound";
    shape.push_back(*bound);
  }
  rewriter.setInsertionPointAfter(slice);
  Location loc = slice.getLoc();
  Value tile = tensor::EmptyOp::create(rewriter, loc, shape, slice.getType().getElementType());
  SmallVector<OpFoldResult> zeros(shape.size(), rewriter.getIndexAttr(0)), ones(shape.size(), rewriter.getIndexAttr(1));
  return tensor::ExtractSliceOp::create(rewriter, loc, slice.getType(), tile, zeros, slice.getMixedSizes(), ones)
      .getResult();
}

/// Replaces every tensor that is written in a loop, except its results, by a temporary inside the loop. Slices of
/// tensors with contents are copied.
static LogicalResult privatizeTemporaries(IRRewriter &rewriter, Operation *root) {
  SmallVector<OpOperand *> inits;
  root->walk([&](linalg::LinalgOp op) {
    auto loop = op->getParentOfType<scf::ForallOp>();
    if (!loop || !op.hasPureTensorSemantics())
      return;
    for (OpOperand &init : op.getDpsInitsMutable()) {
      auto slice = init.get().getDefiningOp<tensor::ExtractSliceOp>();
      if (slice && !loop->isAncestor(slice.getSource().getParentBlock()->getParentOp()))
        inits.push_back(&init);
    }
  });
  for (OpOperand *init : inits) {
    auto slice = init->get().getDefiningOp<tensor::ExtractSliceOp>();
    FailureOr<Value> temporary = createTemporary(rewriter, slice);
    if (failed(temporary))
      return failure();
    bool isRead = cast<linalg::LinalgOp>(init->getOwner()).payloadUsesValueFromOperand(init) &&
                  !slice.getSource().getDefiningOp<tensor::EmptyOp>();
    if (isRead)
      temporary = linalg::CopyOp::create(rewriter, slice.getLoc(), slice.getResult(), *temporary).getResult(0);
    init->set(*temporary);
  }
  return success();
}

namespace {

struct TileLinalg : saccade::impl::TileLinalgBase<TileLinalg> {
  using TileLinalgBase::TileLinalgBase;

  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    dropEmptyLoops(rewriter);
    separateInits(rewriter, getOperation());
    redirectDimsToDestinations(getOperation());

    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (op.hasPureTensorSemantics() && !op->getParentOfType<scf::ForallOp>())
        ops.push_back(op);
    });
    llvm::SmallPtrSet<Operation *, 16> erased;
    // In reverse order, so that a root is never a producer of a later group.
    for (linalg::LinalgOp op : llvm::reverse(ops)) {
      if (erased.contains(op) || eraseIfDead(rewriter, op))
        continue;
      FusionGroup group = formGroup(op, {tileElements, temporaryElements});
      if (!group.isTiled()) {
        wrap(rewriter, op);
        continue;
      }
      if (failed(tileGroup(rewriter, group)))
        return signalPassFailure();
      for (Operation *member : group.members)
        if (eraseIfDead(rewriter, member))
          erased.insert(member);
    }
    // Fusion duplicates a producer with two users in a loop.
    DominanceInfo dominance(getOperation());
    eliminateCommonSubExpressions(rewriter, dominance, getOperation());
    if (failed(loadDequantizedTiles(rewriter, getOperation())) ||
        failed(privatizeTemporaries(rewriter, getOperation())))
      signalPassFailure();
  }

  /// Replaces ops with a static trip count of zero by their inits, because they cannot be tiled.
  void dropEmptyLoops(IRRewriter &rewriter) {
    getOperation().walk([&](linalg::LinalgOp op) {
      if (op.hasPureTensorSemantics() && llvm::is_contained(op.getStaticLoopRanges(), 0))
        rewriter.replaceOp(op, op.getDpsInits());
    });
  }

  static bool eraseIfDead(IRRewriter &rewriter, Operation *op) {
    if (!isOpTriviallyDead(op))
      return false;
    rewriter.eraseOp(op);
    return true;
  }
};

} // namespace
