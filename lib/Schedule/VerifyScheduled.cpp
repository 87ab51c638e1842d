//===- VerifyScheduled.cpp - What holds after the schedule stage --------------===//
//
// Checks that tile sizes are known for all that will be tiled. Stands last in its stage.
//
//===----------------------------------------------------------------------===//
#include "saccade/Schedule/Passes.h"
#include "saccade/Dialect/Attn/Analysis/MatrixProduct.h"

namespace saccade {
#define GEN_PASS_DEF_VERIFYSCHEDULED
#include "saccade/Schedule/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

namespace {

struct VerifyScheduled : saccade::impl::VerifyScheduledBase<VerifyScheduled> {
  void runOnOperation() override {
    WalkResult result = getOperation().walk([](Operation *op) {
      auto structured = dyn_cast<linalg::LinalgOp>(op);
      bool isTiled = isa<attn::AttentionOp>(op) || (structured && isMatrixProduct(structured));
      if (!isTiled || op->getAttrOfType<attn::ScheduleAttr>("schedule"))
        return WalkResult::advance();
      op->emitOpError() << "has no schedule after the schedule stage";
      return WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
