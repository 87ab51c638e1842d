//===- TileHostOps.cpp - Parallel loops for ops outside of tasks --------------===//
//
// Tiles every structured op outside of tasks to a parallel loop, because the host of a GPU program cannot access device
// memory. Runs between bufferization, which adds copies, and outlining, which turns the loops into tasks.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/TileUsingInterface.h"
#include "saccade/Bufferize/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_TILEHOSTOPS
#include "saccade/Bufferize/Passes.h.inc"
} // namespace saccade

using namespace mlir;

/// Elements of a tile: enough work for a few hundred threads.
static constexpr int64_t tileElements = 4096;

/// Wraps `op` in a loop of one iteration.
static void wrap(IRRewriter &rewriter, linalg::LinalgOp op) {
  SmallVector<OpFoldResult> zero = {rewriter.getIndexAttr(0)}, one = {rewriter.getIndexAttr(1)};
  auto loop = scf::ForallOp::create(rewriter, op.getLoc(), zero, one, one, ValueRange(), /*mapping=*/std::nullopt);
  rewriter.moveOpBefore(op, loop.getTerminator());
}

static LogicalResult tile(IRRewriter &rewriter, linalg::LinalgOp op) {
  rewriter.setInsertionPoint(op);
  SmallVector<unsigned> parallel;
  op.getParallelDims(parallel);
  if (parallel.empty()) {
    wrap(rewriter, op);
    return success();
  }
  SmallVector<OpFoldResult> sizes(op.getNumLoops(), rewriter.getIndexAttr(0));
  for (unsigned loop : parallel)
    sizes[loop] = rewriter.getIndexAttr(loop == parallel.back() ? tileElements : 1);
  scf::SCFTilingOptions options;
  options.setLoopType(scf::SCFTilingOptions::LoopType::ForallOp).setTileSizes(sizes);
  if (failed(scf::tileUsingSCF(rewriter, cast<TilingInterface>(op.getOperation()), options)))
    return op.emitOpError("could not be tiled");
  rewriter.eraseOp(op);
  return success();
}

namespace {

struct TileHostOps : saccade::impl::TileHostOpsBase<TileHostOps> {
  void runOnOperation() override {
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (op.hasPureBufferSemantics() && !op->getParentOfType<scf::ForallOp>())
        ops.push_back(op);
    });
    IRRewriter rewriter(&getContext());
    for (linalg::LinalgOp op : ops)
      if (failed(tile(rewriter, op)))
        return signalPassFailure();
  }
};

} // namespace
