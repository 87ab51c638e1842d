//===- ExpandPaged.cpp - Copy the keys of a page pool as a whole --------------===//
//
// Replaces each attn.paged that a consumer does not read by tiles with a structured op that copies all positions. It
// runs after the tiling of attention, which leaves the ops of derivatives and other consumers.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Support/IndexEmitter.h"
#include "saccade/Tiling/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_EXPANDPAGED
#include "saccade/Tiling/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

namespace {

void expand(IRRewriter &rewriter, PagedOp op) {
  Location loc = op.getLoc();
  ReifiedRankedShapedTypeDims shapes;
  rewriter.setInsertionPoint(op);
  if (failed(op.reifyResultShapes(rewriter, shapes)))
    return;
  auto type = cast<RankedTensorType>(op.getResult().getType());
  unsigned batch = *op.getDims().position(Dim::Batch), seq = *op.getDims().position(Dim::Seq);
  IndexEmitter e(rewriter, loc);
  auto sizeOf = [&](unsigned dim) {
    return getValueOrCreateConstantIndexOp(rewriter, loc, tensor::getMixedSize(rewriter, loc, op.getPool(), dim));
  };
  Value lastPage = e.sub(sizeOf(batch), e.index(1)), pageSize = sizeOf(seq);
  Value empty = tensor::EmptyOp::create(rewriter, loc, shapes[0], type.getElementType());
  auto identity = AffineMap::getMultiDimIdentityMap(type.getRank(), rewriter.getContext());
  SmallVector<utils::IteratorType> loops(type.getRank(), utils::IteratorType::parallel);
  auto copy = linalg::GenericOp::create(
      rewriter, loc, empty.getType(), ValueRange(), empty, identity, loops, [&](OpBuilder &b, Location, ValueRange) {
        IndexEmitter inner(b, loc);
        SmallVector<Value> index;
        for (int64_t dim = 0; dim < type.getRank(); ++dim)
          index.push_back(linalg::IndexOp::create(b, loc, dim));
        Value entry = arith::DivUIOp::create(b, loc, index[seq], pageSize);
        Value page = tensor::ExtractOp::create(b, loc, op.getTable(), ValueRange{index[batch], entry});
        index[batch] = inner.max(inner.index(0), inner.min(inner.asIndex(page), lastPage));
        index[seq] = arith::RemUIOp::create(b, loc, index[seq], pageSize);
        linalg::YieldOp::create(b, loc, tensor::ExtractOp::create(b, loc, op.getPool(), index).getResult());
      });
  Value result = copy.getResult(0);
  if (result.getType() != type)
    result = tensor::CastOp::create(rewriter, loc, type, result);
  rewriter.replaceOp(op, result);
}

struct ExpandPaged : saccade::impl::ExpandPagedBase<ExpandPaged> {
  void runOnOperation() override {
    // The extents of ops that attention computes by tiles are their only other uses.
    RewritePatternSet patterns(&getContext());
    memref::populateResolveRankedShapedTypeResultDimsPatterns(patterns);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();
    SmallVector<PagedOp> ops;
    getOperation().walk([&](PagedOp op) { ops.push_back(op); });
    for (PagedOp op : ops) {
      IRRewriter rewriter(op);
      expand(rewriter, op);
    }
  }
};

} // namespace
