//===- TileLinalg.cpp - Structured ops as parallel tasks ----------------------===//
//
// Makes one parallel loop over tiles of each group of structured ops. It stands beside TileQueries and before
// bufferization, which can only then write every tile where it is wanted.
//
//===----------------------------------------------------------------------===//
#include "FusionGroup.h"
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

/// Asks for the extents of what an op writes into instead of those of its result, which would keep it alive, or make a
/// loop depend on its own result.
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

/// Makes the loop of a group and erases what is computed in it.
static LogicalResult tileGroup(IRRewriter &rewriter, FusionGroup &group) {
  SmallVector<OpFoldResult> sizes = getAsIndexOpFoldResult(rewriter.getContext(), group.tileSizes);
  scf::SCFTileAndFuseOptions options;
  scf::SCFTilingOptions tiling;
  tiling.setLoopType(scf::SCFTilingOptions::LoopType::ForallOp).setTileSizes(sizes);
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
    return group.root.emitOpError() << "could not be cut into tiles";
  // Parts of producers that were fused after all would otherwise be parts of what the loop itself makes.
  for (LoopLikeOpInterface loop : result->loops)
    eraseDeadSlices(rewriter, loop);
  redirectDimsToDestinations(group.root->getParentOp());
  for (auto [original, replacement] : result->replacements)
    rewriter.replaceAllUsesWith(original, replacement);
  return success();
}

/// Makes a loop of one iteration around an op that has nothing to cut: it is one task.
static void wrap(IRRewriter &rewriter, linalg::LinalgOp op) {
  rewriter.setInsertionPoint(op);
  Location loc = op.getLoc();
  SmallVector<OpFoldResult> zero = {rewriter.getIndexAttr(0)}, one = {rewriter.getIndexAttr(1)};
  SmallVector<Value> inits(op.getDpsInits());
  auto loop = scf::ForallOp::create(rewriter, loc, zero, one, one, inits, /*mapping=*/std::nullopt);
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

/// Gives everything that starts from a filled or broadcast tensor its own one: it is cheaper to fill twice than to keep
/// one outside of all loops.
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

/// The largest value of a tile's extent: the constant in the `affine.min` that cuts off the last tile.
static std::optional<int64_t> upperBound(OpFoldResult size) {
  if (std::optional<int64_t> constant = getConstantIntValue(size))
    return constant;
  auto min = cast<Value>(size).getDefiningOp<affine::AffineMinOp>();
  if (!min)
    return std::nullopt;
  std::optional<int64_t> bound;
  for (AffineExpr expr : min.getMap().getResults())
    if (auto constant = dyn_cast<AffineConstantExpr>(expr))
      bound = std::min(bound.value_or(constant.getValue()), constant.getValue());
  return bound;
}

/// A new temporary for `slice`, as large as a tile can be, and the part of it that this tile has: the memory of a task
/// is planned before it runs.
static FailureOr<Value> createTemporary(IRRewriter &rewriter, tensor::ExtractSliceOp slice) {
  SmallVector<int64_t> shape;
  for (auto [size, whole] : llvm::zip_equal(slice.getMixedSizes(), slice.getSourceType().getShape())) {
    std::optional<int64_t> bound = upperBound(size);
    // No part is larger than the whole.
    if (!bound && !ShapedType::isDynamic(whole))
      bound = whole;
    if (!bound)
      return slice.emitOpError() << "takes a temporary whose size has no bound";
    shape.push_back(*bound);
  }
  rewriter.setInsertionPointAfter(slice);
  Location loc = slice.getLoc();
  Value tile = tensor::EmptyOp::create(rewriter, loc, shape, slice.getType().getElementType());
  SmallVector<OpFoldResult> zeros(shape.size(), rewriter.getIndexAttr(0)), ones(shape.size(), rewriter.getIndexAttr(1));
  return tensor::ExtractSliceOp::create(rewriter, loc, slice.getType(), tile, zeros, slice.getMixedSizes(), ones)
      .getResult();
}

/// Makes every tensor that is written in a loop, but its results, a temporary of the loop: parts of empty tensors
/// outside, and parts of tensors that hold something, which are copied.
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
    // From the last to the first, so that a root is never a producer of a group to come.
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
    // A producer with two users in a loop was put there twice.
    DominanceInfo dominance(getOperation());
    eliminateCommonSubExpressions(rewriter, dominance, getOperation());
    if (failed(privatizeTemporaries(rewriter, getOperation())))
      signalPassFailure();
  }

  /// Loops that are known to have no iterations leave what they started from, and there are no tiles of none.
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
