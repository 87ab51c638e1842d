//===- VerifyTiled.cpp - The invariant after the tiling stage -----------------===//
//
// Verifies that no op on whole tensors is left outside of a task. It runs last in its stage.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Tiling/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_VERIFYTILED
#include "saccade/Tiling/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

namespace {

struct VerifyTiled : saccade::impl::VerifyTiledBase<VerifyTiled> {
  void runOnOperation() override {
    WalkResult result = getOperation().walk([](Operation *op) {
      if (isa<attn::AttentionOp, attn::DerivativeOpInterface, attn::LinearOp, attn::AppendOp>(op)) {
        op->emitOpError() << "is left after the tiling stage";
        return WalkResult::interrupt();
      }
      if (isa<linalg::LinalgOp>(op) && !op->getParentOfType<scf::ForallOp>()) {
        op->emitOpError() << "is outside of a task after the tiling stage";
        return WalkResult::interrupt();
      }
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
