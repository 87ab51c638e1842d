//===- AssignSchedule.cpp - Tile sizes of attention and contractions ----------===//
//
// Chooses how many rows a task has and how many keys a step. Stands before tiling, which only reads
// what is written here; sequence lengths and batches stay out, so that one kernel serves all.
//
//===----------------------------------------------------------------------===//
#include "saccade/Schedule/Passes.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"

namespace saccade {
#define GEN_PASS_DEF_ASSIGNSCHEDULE
#include "saccade/Schedule/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

/// The part of a core's second-level cache (1 MiB on current servers) that the operands of a task may fill.
static constexpr int64_t cacheBytes = 640 * 1024;

attn::ScheduleAttr saccade::scheduleAttention(Type element, int64_t depth, int64_t valueDepth,
                                              const CPUTarget &target) {
  // A step holds the packed keys and values; a task also its queries and its accumulator. Steps of 512 keys are
  // where rescaling and packing stop to show, twice as many where products of pairs are twice as fast. A task that has more
  // than 512 queries packs the keys of shorter sequences once. Halve both until they fit; rows stay whole groups.
  int64_t step = target.packingFactor(element, element);
  int64_t rows = 576, cols = 512 * step;
  int64_t columnBytes = (depth + valueDepth) * attn::getScoreType(element).getWidth() / step / 8;
  while (cols > 64 && (rows + cols) * columnBytes > cacheBytes) {
    rows = rows > 96 && cols <= 512 ? rows / 2 : rows;
    cols /= 2;
  }
  return attn::ScheduleAttr::get(element.getContext(), rows, cols, 0);
}

attn::SplitKVAttr saccade::scheduleSplitKV(MLIRContext *context) {
  // Beyond eight queries a head, packing keys costs less than reading registers of queries for each of them. A group of
  // rows takes less time than a core needs to read the keys and values it works on.
  return attn::SplitKVAttr::get(context, /*queries=*/8, /*rows=*/rowGroup, /*cols=*/1024);
}

attn::ScheduleAttr saccade::scheduleContraction(MLIRContext *context, unsigned bits, const CPUTarget &target) {
  MatmulBlock block;
  return attn::ScheduleAttr::get(context, block.rows, bits == 64 ? block.columns / 2 : block.columns, block.depth);
}

/// A depth for choosing tiles where the type leaves it open.
static int64_t depthOr(int64_t depth, int64_t fallback) { return ShapedType::isDynamic(depth) ? fallback : depth; }

namespace {

struct AssignSchedule : saccade::impl::AssignScheduleBase<AssignSchedule> {
  using AssignScheduleBase::AssignScheduleBase;

  void runOnOperation() override {
    const CPUTarget *cpu = requireCPUTarget(getOperation(), target);
    if (!cpu)
      return signalPassFailure();
    getOperation().walk([&](attn::AttentionOp op) {
      if (op.getScheduleAttr())
        return;
      int64_t depth = depthOr(attn::getStaticDimSize(op.getKey(), op.getKeyDims(), attn::Dim::Depth), 64);
      int64_t valueDepth = depthOr(attn::getStaticDimSize(op.getValue(), op.getValueDims(), attn::Dim::Depth), 64);
      op.setScheduleAttr(scheduleAttention(getElementTypeOrSelf(op.getQuery()), depth, valueDepth, *cpu));
      attn::SplitKVAttr splitKV = scheduleSplitKV(&getContext());
      int64_t queries = attn::getStaticDimSize(op.getQuery(), op.getQueryDims(), attn::Dim::Seq);
      if (!op.getSplitKvAttr() && (ShapedType::isDynamic(queries) || queries <= splitKV.getQueries()))
        op.setSplitKvAttr(splitKV);
    });
    getOperation().walk([&](linalg::LinalgOp op) {
      if (!isMatmul(op) || op->hasAttr("schedule"))
        return;
      unsigned bits = getElementTypeOrSelf(op.getDpsInits()[0]).getIntOrFloatBitWidth();
      op->setAttr("schedule", scheduleContraction(&getContext(), bits, *cpu));
    });
  }
};

} // namespace

void saccade::buildSchedulePipeline(OpPassManager &pm, const CPUTarget &target) {
  AssignScheduleOptions options;
  options.target = target.name.str();
  pm.addNestedPass<func::FuncOp>(createAssignSchedule(options));
  pm.addNestedPass<func::FuncOp>(createVerifyScheduled());
}
