//===- TileQueries.cpp - Attention as parallel tasks --------------------------===//
//
// Cuts attention over batch, head and chunks of queries through its TilingInterface. Stands before
// TileKeys, which wants one batch and one head.
//
//===----------------------------------------------------------------------===//
#include "FewQueries.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Support/CPUTarget.h"
#include "saccade/Tiling/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/SCF/Transforms/TileUsingInterface.h"

namespace saccade {
#define GEN_PASS_DEF_TILEQUERIES
#include "saccade/Tiling/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

/// The queries of a chunk: the fewest chunks of at most `rows`, evenly sized, in whole row groups, so that only the last
/// one has a remainder.
static OpFoldResult chunkSize(OpBuilder &b, Location loc, OpFoldResult queries, int64_t rows) {
  AffineExpr n, chunks;
  bindSymbols(b.getContext(), n, chunks);
  auto atLeast = [&](int64_t bound, OpFoldResult value) {
    auto map = AffineMap::get(0, 1, {n, getAffineConstantExpr(bound, b.getContext())}, b.getContext());
    return affine::makeComposedFoldedAffineMax(b, loc, map, {value});
  };
  // No queries, no chunks: the division must still be defined.
  OpFoldResult count = atLeast(1, affine::makeComposedFoldedAffineApply(b, loc, n.ceilDiv(rows), {queries}));
  AffineExpr size = n.ceilDiv(chunks).ceilDiv(rowGroup) * rowGroup;
  return atLeast(rowGroup, affine::makeComposedFoldedAffineApply(b, loc, size, {queries, count}));
}

namespace {

struct TileQueries : saccade::impl::TileQueriesBase<TileQueries> {
  void runOnOperation() override {
    SmallVector<attn::AttentionOp> ops;
    getOperation().walk([&](attn::AttentionOp op) { ops.push_back(op); });
    for (attn::AttentionOp op : ops)
      if (failed(tile(op)))
        return signalPassFailure();
  }

  LogicalResult tile(attn::AttentionOp op) {
    if (!op.getScheduleAttr())
      return op.emitOpError() << "has no schedule; run attn-assign-schedule first";
    IRRewriter rewriter(op);
    if (!op.getFewAttr() || !canBeCutAlongKeys(op))
      return tileByQueries(rewriter, op, /*isFew=*/nullptr);
    Value isFew = hasFewQueries(rewriter, op);
    std::optional<int64_t> known = getConstantIntValue(isFew);
    if (!known)
      return tileByQueries(rewriter, op, isFew);
    if (*known == 0)
      return tileByQueries(rewriter, op, /*isFew=*/nullptr);
    SmallVector<Value> inits;
    if (failed(tensor::getOrCreateDestinations(rewriter, op.getLoc(), op, inits)))
      return op.emitOpError() << "has results of unknown extent";
    rewriter.replaceOp(op, tileFewQueries(rewriter, op, isFew, inits));
    return success();
  }

  /// One task a batch, head and chunk of queries. With `isFew` the same op follows in its other form: whichever does not
  /// hold has no task.
  LogicalResult tileByQueries(IRRewriter &rewriter, attn::AttentionOp op, Value isFew) {
    OpFoldResult queries =
        attn::getDimSize(rewriter, op.getLoc(), op.getQuery(), op.getQueryDims(), attn::Dim::Seq);
    OpFoldResult one = rewriter.getIndexAttr(1);
    scf::SCFTilingOptions options;
    options.setLoopType(scf::SCFTilingOptions::LoopType::ForallOp);
    options.setTileSizes({one, one, chunkSize(rewriter, op.getLoc(), queries, op.getScheduleAttr().getRows())});
    FailureOr<scf::SCFTilingResult> tiled =
        scf::tileUsingSCF(rewriter, cast<TilingInterface>(op.getOperation()), options);
    if (failed(tiled))
      return op.emitOpError() << "could not be tiled over batch, head and queries";
    for (Operation *tile : tiled->tiledOps)
      cast<attn::AttentionOp>(tile).removeFewAttr();
    SmallVector<Value> results = tiled->replacements;
    if (isFew) {
      auto loop = results[0].getDefiningOp<scf::ForallOp>();
      rewriter.setInsertionPointAfter(loop);
      results = tileFewQueries(rewriter, op, isFew, results);
      rewriter.setInsertionPoint(loop);
      Value none = arith::ConstantIndexOp::create(rewriter, op.getLoc(), 0);
      for (OpOperand &bound : loop.getDynamicUpperBoundMutable())
        bound.set(arith::SelectOp::create(rewriter, op.getLoc(), isFew, none, bound.get()));
    }
    rewriter.replaceOp(op, results);
    return success();
  }
};

} // namespace
