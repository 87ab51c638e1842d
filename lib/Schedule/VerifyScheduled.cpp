//===- VerifyScheduled.cpp - The invariant after the schedule stage -----------===//
//
// Verifies that all ops that will be tiled have a schedule, and that head sizes are within the limit. It runs last in
// its stage.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Schedule/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_VERIFYSCHEDULED
#include "saccade/Schedule/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

static LogicalResult verifyHeadSizes(Operation *op) {
  auto verify = [&](StringRef role, Value operand, attn::DimsAttr dims) -> LogicalResult {
    int64_t size = attn::getStaticDimSize(operand, dims, attn::Dim::Depth);
    if (ShapedType::isDynamic(size))
      return isa<attn::LinearOpInterface>(op) // TileLinear reports it
                 ? success()
                 : op->emitOpError() << "head size of " << role << " is dynamic, expected a static one";
    if (size <= attn::maxHeadSize)
      return success();
    return op->emitOpError() << "head size of " << role << " is " << size << ", expected at most " << attn::maxHeadSize;
  };
  auto verifyBoth = [&](auto each) {
    return failure(failed(verify("key", each.getKey(), each.getKeyDims())) ||
                   failed(verify("value", each.getValue(), each.getValueDims())));
  };
  if (auto attention = dyn_cast<attn::AttentionOp>(op))
    return verifyBoth(attention);
  if (auto derivative = dyn_cast<attn::DerivativeOpInterface>(op))
    return verifyBoth(derivative);
  auto linear = dyn_cast<attn::LinearOpInterface>(op);
  return linear ? verifyBoth(linear) : success();
}

namespace {

struct VerifyScheduled : saccade::impl::VerifyScheduledBase<VerifyScheduled> {
  void runOnOperation() override {
    WalkResult result = getOperation().walk([](Operation *op) {
      if (failed(verifyHeadSizes(op)))
        return WalkResult::interrupt();
      auto structured = dyn_cast<linalg::LinalgOp>(op);
      bool isTiled = isa<attn::AttentionOp, attn::DerivativeOpInterface>(op) || (structured && isMatmul(structured));
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
