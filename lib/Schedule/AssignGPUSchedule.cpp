//===- AssignGPUSchedule.cpp - Tile sizes of GPU kernels ----------------------===//
//
// The counterpart of AssignSchedule for GPUs. The CTA size fixes the rows of a task; kernels subdivide key tiles
// themselves, so these are long.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Runtime/BulkTensor.h"
#include "saccade/Schedule/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_ASSIGNGPUSCHEDULE
#include "saccade/Schedule/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

/// The maximum sum of head sizes for split-KV: eight keys with their values must fit in the shared memory of a CTA.
static int64_t maxSplitHeadSizes(Type element) { return 48 * 1024 / 8 / (element.isF64() ? 8 : 4); }

/// The largest tiles of a derivative, in bytes, and what else is in shared memory: the operands of a matmul, and
/// padding.
static constexpr int64_t derivativeTileBytes = 48 * 1024, derivativeOtherBytes = 20 * 1024;

/// The multiprocessors of a GPU of sm_90a (NVIDIA H100 Tensor Core GPU Architecture, H100 SXM5).
static constexpr int64_t bulkMultiprocessors = 132;

attn::ScheduleAttr saccade::scheduleAttention(Type element, int64_t depth, int64_t valueDepth, Warpgroups warpgroups,
                                              const GPUTarget &target) {
  auto rows = [&]() -> int64_t {
    if (!target.hasAsyncCopy || element.getIntOrFloatBitWidth() != 16)
      return 128;
    // A warpgroup computes 64 rows. The registers of a multiprocessor suffice for three if the accumulator has 64
    // columns.
    if (target.hasBulkCopy && warpgroups != Warpgroups::None)
      return warpgroups == Warpgroups::Three && std::max(depth, valueDepth) <= 64 ? maxWarpgroupRows : 128;
    // Four threads of mma.sync share the accumulator of a row, with at most 128 elements per thread.
    return valueDepth > 128 ? 64 : 128;
  };
  return attn::ScheduleAttr::get(element.getContext(), rows(), /*cols=*/16384, /*depth=*/0);
}

attn::SplitKVAttr saccade::scheduleSplitKVForGPU(MLIRContext *context, bool isOnWarpgroups) {
  // 16 rows are one mma.sync tile, 64 those of a warpgroup. Chunks of 256 keys give enough tasks to fill a GPU from a
  // few thousand keys on; the partial states of 16 rows take a few percent of the memory of the keys.
  return attn::SplitKVAttr::get(context, /*queries=*/16, /*rows=*/isOnWarpgroups ? 64 : 16, /*cols=*/256,
                                /*all=*/false);
}

attn::ScheduleAttr saccade::scheduleDerivativeForGPU(Type element, int64_t depth, int64_t valueDepth,
                                                     int64_t temporaries, const GPUTarget &target) {
  // Tiles of pairs and the sums of a tile are in shared memory, with operands of matmuls beside them.
  int64_t rows = 32, cols = 64, elementBytes = attn::getScoreType(element).getWidth() / 8;
  auto bytes = [&] {
    return (temporaries * rows * cols + std::max(rows * depth, cols * (depth + valueDepth))) * elementBytes;
  };
  int64_t most = std::min(derivativeTileBytes, target.sharedBytes - derivativeOtherBytes);
  while (bytes() > most && rows * cols > 16 * 8)
    (cols > rows ? cols : rows) /= 2;
  return attn::ScheduleAttr::get(element.getContext(), rows, cols, /*depth=*/0);
}

/// Whether bulk copies can read the operands of a matmul, of 16-bit floats, unless they have unusual strides: rows of
/// contiguous tensors are multiples of 16 bytes.
static bool hasCopiedOperands(linalg::LinalgOp op) {
  Type element = getElementTypeOrSelf(op.getDpsInputs()[0]), sum = getElementTypeOrSelf(op.getDpsInits()[0]);
  if (sum != element && !sum.isF32())
    return false;
  return (element.isF16() || element.isBF16()) && llvm::all_of(op.getDpsInputs(), [&](Value operand) {
           auto type = cast<ShapedType>(operand.getType());
           int64_t columns = type.getShape().back();
           return type.getElementType() == element && (ShapedType::isDynamic(columns) || columns % 8 == 0);
         });
}

attn::ScheduleAttr saccade::scheduleMatmul(linalg::LinalgOp op, const GPUTarget &target) {
  auto squares = [&](int64_t size) { return attn::ScheduleAttr::get(op.getContext(), size, size, /*depth=*/16); };
  constexpr int64_t large = 128, small = 64;
  if (!target.hasBulkCopy || !hasCopiedOperands(op))
    // 4 × 8 accumulators per thread, which fit in registers together with their operands.
    return squares(small);
  // Two warpgroups compute 64 rows each. Fewer large tiles than multiprocessors would leave some without work;
  // dynamic extents are taken as large.
  std::optional<linalg::ContractionDimensions> dims = getMatmulDims(op);
  int64_t tiles = 1;
  for (auto [loop, size] : llvm::enumerate(op.getStaticLoopRanges())) {
    if (llvm::is_contained(dims->k, loop))
      continue;
    if (ShapedType::isDynamic(size))
      return squares(large);
    tiles *= llvm::is_contained(dims->batch, loop) ? size : llvm::divideCeil(size, large);
  }
  return squares(tiles < bulkMultiprocessors ? small : large);
}

/// The number of tiles of pairs that a derivative has in shared memory: two of products, which the operands of the
/// other matmuls replace, and what else its region yields.
static int64_t countTemporaries(attn::DerivativeOpInterface op) { return op.getDerivativeTypes().size() + 1; }

/// Whether tiles of a gradient of the queries, keys and values have kernels with products and sums in registers
/// (LowerGradientSM80).
static bool hasRegisterTiles(attn::DerivativeOpInterface op, int64_t depth, int64_t valueDepth,
                             const GPUTarget &target) {
  Type element = getElementTypeOrSelf(op.getQuery());
  auto fits = [](int64_t size) { return size % 16 == 0 && size <= 128; };
  auto gradient = dyn_cast<attn::GradientOp>(op.getOperation());
  auto isNarrow = [&](Value value) { return getElementTypeOrSelf(value) == element; };
  return target.hasAsyncCopy && (element.isF16() || element.isBF16()) && fits(depth) && fits(valueDepth) && gradient &&
         gradient->getNumResults() == 3 && isNarrow(gradient.getOutputGradient()) &&
         llvm::all_of(gradient->getResults(), isNarrow);
}

/// The warpgroups of attention, unless operands have unusual strides: bulk copies read rows of known size that are
/// contiguous, in a tensor of the type of the queries, or in pages of a multiple of eight rows, and a kernel reads the
/// keys once. Masks that are more than
/// bounds of keys and scores that depend on the position take more registers than three warpgroups have.
static Warpgroups warpgroupsOf(attn::AttentionOp op) {
  auto isCopied = [&](Value operand, attn::DimsAttr dims) {
    auto type = cast<ShapedType>(operand.getType());
    int64_t depth = *dims.position(attn::Dim::Depth);
    if (auto paged = operand.getDefiningOp<attn::PagedOp>()) {
      int64_t pageSize = attn::getStaticDimSize(paged.getPool(), paged.getDims(), attn::Dim::Seq);
      bool isMultiple = ShapedType::isDynamic(pageSize) || pageSize % runtime::BulkTensor::swizzleRows == 0;
      if (!isMultiple || !op.getAt().empty())
        return false;
    }
    return depth == type.getRank() - 1 && !type.isDynamicDim(depth) &&
           type.getElementType() == getElementTypeOrSelf(op.getQuery());
  };
  bool readsOnce = !attn::needsSoftmaxWeights(op);
  if (!isCopied(op.getQuery(), op.getQueryDims()) || !isCopied(op.getKey(), op.getKeyDims()) ||
      !isCopied(op.getValue(), op.getValueDims()) || !op.getTallyRegions().empty() || !readsOnce)
    return Warpgroups::None;
  bool readsPositions =
      !op.getScore().empty() && !attn::getRegionArguments(op.getScore(), /*numbers=*/1).key.use_empty();
  bool isBounded = attn::KeyBounds(cast<attn::ScoringOpInterface>(op.getOperation())).isExact();
  return readsPositions || !isBounded || !op.getWeight().empty() ? Warpgroups::Two : Warpgroups::Three;
}

/// Whether split-KV of `op` has a kernel for warpgroups, unless operands have unusual strides. The numbers of queries
/// of ragged sequences are not known when memory for states is allocated, which would be that of 64 rows for each item;
/// so their items have fewer rows. Rows of contiguous keys and values must be multiples of 16 bytes
/// (hasCopiedOperands): the kernel that would run instead computes 64 rows one part after the other, with fewer CTAs
/// than for items of 16.
static bool hasSplitKVOnWarpgroups(attn::AttentionOp op, int64_t depth, int64_t valueDepth, const GPUTarget &target) {
  auto isComputed = [](Value operand) { return bool(operand.getDefiningOp<linalg::LinalgOp>()); };
  Type element = getElementTypeOrSelf(op.getQuery());
  return target.hasBulkCopy && (element.isF16() || element.isBF16()) && std::max(depth, valueDepth) <= 256 &&
         depth % 8 == 0 && valueDepth % 8 == 0 && warpgroupsOf(op) != Warpgroups::None && !op.getRowMax() &&
         !op.getArgmax() && !op.getCuSeqlensQ() && !isComputed(op.getKey()) && !isComputed(op.getValue());
}

namespace {

struct AssignGPUSchedule : saccade::impl::AssignGPUScheduleBase<AssignGPUSchedule> {
  using AssignGPUScheduleBase::AssignGPUScheduleBase;

  void runOnOperation() override {
    const GPUTarget *gpu = requireGPUTarget(getOperation(), target);
    if (!gpu)
      return signalPassFailure();
    WalkResult refused = getOperation().walk([&](attn::ScoringOpInterface op) {
      auto attention = dyn_cast<attn::AttentionOp>(op.getOperation());
      if (op.getStickBreaking())
        op->emitOpError() << "has the normalizer stick_breaking, which has no kernels for GPUs";
      else if (attention && attention.getSplitKvAttr() && attention.getSplitKvAttr().getAll())
        op->emitOpError() << "uses split-KV for all queries, which has no kernels for GPUs";
      else
        return WalkResult::advance();
      return WalkResult::interrupt();
    });
    if (refused.wasInterrupted())
      return signalPassFailure();
    getOperation().walk([&](attn::AttentionOp op) {
      int64_t depth = attn::getStaticDimSize(op.getKey(), op.getKeyDims(), attn::Dim::Depth);
      int64_t valueDepth = attn::getStaticDimSize(op.getValue(), op.getValueDims(), attn::Dim::Depth);
      if (!op.getScheduleAttr())
        op.setScheduleAttr(
            scheduleAttention(getElementTypeOrSelf(op.getQuery()), depth, valueDepth, warpgroupsOf(op), *gpu));
      attn::SplitKVAttr splitKV =
          scheduleSplitKVForGPU(&getContext(), hasSplitKVOnWarpgroups(op, depth, valueDepth, *gpu));
      int64_t queries = attn::getStaticDimSize(op.getQuery(), op.getQueryDims(), attn::Dim::Seq);
      bool fits = depth + valueDepth <= maxSplitHeadSizes(getElementTypeOrSelf(op.getQuery()));
      // The extent of ragged queries is the sum over all sequences.
      bool isSplitKV = op.getCuSeqlensQ() || queries <= splitKV.getQueries();
      if (!op.getSplitKvAttr() && fits && (isSplitKV || ShapedType::isDynamic(queries)))
        op.setSplitKvAttr(splitKV);
    });
    getOperation().walk([&](attn::DerivativeOpInterface op) {
      int64_t depth = attn::getStaticDimSize(op.getKey(), op.getKeyDims(), attn::Dim::Depth);
      int64_t valueDepth = attn::getStaticDimSize(op.getValue(), op.getValueDims(), attn::Dim::Depth);
      bool isStatic = !ShapedType::isDynamic(depth) && !ShapedType::isDynamic(valueDepth);
      if (!op.getScheduleAttr() && isStatic && hasRegisterTiles(op, depth, valueDepth, *gpu))
        op.setScheduleAttr(attn::ScheduleAttr::get(&getContext(), /*rows=*/64, /*cols=*/64, /*depth=*/0));
      else if (!op.getScheduleAttr() && isStatic)
        op.setScheduleAttr(scheduleDerivativeForGPU(getElementTypeOrSelf(op.getQuery()), depth, valueDepth,
                                                    countTemporaries(op), *gpu));
    });
    getOperation().walk([&](linalg::LinalgOp op) {
      if (isMatmul(op) && !op->hasAttr("schedule"))
        op->setAttr("schedule", scheduleMatmul(op, *gpu));
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
