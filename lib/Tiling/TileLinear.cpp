//===- TileLinear.cpp - Tile linear attention into tasks and chunks -----------===//
//
// Replaces attn.linear by a parallel loop over sequences and heads of states whose tasks carry the state through chunks
// of positions (the chunked form of Yang et al. 2024). It corresponds to TileQueries and TileKeys for attn.attention.
//
//===----------------------------------------------------------------------===//
#include "LinearForwardTasks.h"
#include "LinearGradientTasks.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Tiling/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_TILELINEAR
#include "saccade/Tiling/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

namespace {

struct TileLinear : saccade::impl::TileLinearBase<TileLinear> {
  using TileLinearBase::TileLinearBase;

  void runOnOperation() override {
    SmallVector<LinearOpInterface> ops;
    getOperation().walk([&](LinearOpInterface op) { ops.push_back(op); });
    for (LinearOpInterface op : ops) {
      IRRewriter rewriter(op);
      auto linear = dyn_cast<LinearOp>(op.getOperation());
      LogicalResult done =
          linear ? LinearForwardTasks(rewriter, linear, gpu).rewrite()
                 : LinearGradientTasks(rewriter, cast<LinearGradientOp>(op.getOperation()), gpu).rewrite();
      if (failed(done))
        return signalPassFailure();
    }
  }
};

} // namespace
