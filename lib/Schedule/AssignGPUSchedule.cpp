//===- AssignGPUSchedule.cpp - Tile sizes of GPU kernels -------------------===//
//
// What AssignSchedule is for a CPU. A kernel's threads are fixed, so its rows are too; how many keys it takes at once is
// its own affair, and a step of the loop is as long as it is useful.
//
//===----------------------------------------------------------------------===//
#include "saccade/Schedule/Passes.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"

namespace saccade {
#define GEN_PASS_DEF_ASSIGNGPUSCHEDULE
#include "saccade/Schedule/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

/// Head sizes with which the keys of few queries are cut: those whose state fits into a CTA beside the keys.
static constexpr int64_t maxSplitHeadSize = 256;

attn::ScheduleAttr saccade::scheduleAttention(Type element, int64_t valueDepth, const GPUTarget &target) {
  // The accumulator of a row of the tensor cores' kernel lies in four threads: 128 numbers in each is what fits.
  bool isDeep = target.hasAsyncCopy && element.getIntOrFloatBitWidth() == 16 && valueDepth > 128;
  return attn::ScheduleAttr::get(element.getContext(), isDeep ? 64 : 128, /*cols=*/16384, /*depth=*/0);
}

attn::SplitKVAttr saccade::scheduleSplitKVForGPU(MLIRContext *context) {
  // Sixteen rows are what a product of the tensor cores has. 256 keys of each head make enough tasks for a GPU from a few
  // thousand positions on; what their states take in memory is a few percent of the keys.
  return attn::SplitKVAttr::get(context, /*queries=*/16, /*rows=*/16, /*cols=*/256);
}

attn::ScheduleAttr saccade::scheduleMatmul(MLIRContext *context) {
  // Eight columns of four rows for each thread: their sums lie in registers beside what they are the product of.
  return attn::ScheduleAttr::get(context, /*rows=*/64, /*cols=*/64, /*depth=*/16);
}

namespace {

struct AssignGPUSchedule : saccade::impl::AssignGPUScheduleBase<AssignGPUSchedule> {
  using AssignGPUScheduleBase::AssignGPUScheduleBase;

  void runOnOperation() override {
    const GPUTarget *gpu = requireGPUTarget(getOperation(), target);
    if (!gpu)
      return signalPassFailure();
    getOperation().walk([&](attn::AttentionOp op) {
      int64_t depth = attn::getStaticDimSize(op.getKey(), op.getKeyDims(), attn::Dim::Depth);
      int64_t valueDepth = attn::getStaticDimSize(op.getValue(), op.getValueDims(), attn::Dim::Depth);
      if (!op.getScheduleAttr())
        op.setScheduleAttr(scheduleAttention(getElementTypeOrSelf(op.getQuery()), valueDepth, *gpu));
      attn::SplitKVAttr splitKV = scheduleSplitKVForGPU(&getContext());
      int64_t queries = attn::getStaticDimSize(op.getQuery(), op.getQueryDims(), attn::Dim::Seq);
      bool fits = std::max(depth, valueDepth) <= maxSplitHeadSize, isSplitKV = queries <= splitKV.getQueries();
      if (!op.getSplitKvAttr() && fits && (isSplitKV || ShapedType::isDynamic(queries)))
        op.setSplitKvAttr(splitKV);
    });
    getOperation().walk([&](linalg::LinalgOp op) {
      if (isMatmul(op) && !op->hasAttr("schedule"))
        op->setAttr("schedule", scheduleMatmul(&getContext()));
    });
  }
};

} // namespace

void saccade::buildSchedulePipeline(OpPassManager &pm, const GPUTarget &target) {
  AssignGPUScheduleOptions options;
  options.target = target.name.str();
  pm.addNestedPass<func::FuncOp>(createAssignGPUSchedule(options));
  pm.addNestedPass<func::FuncOp>(createVerifyScheduled());
}
