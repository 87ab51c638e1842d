//===- AssignSchedule.cpp - Tile sizes of attention and contractions ----------===//
//
// Chooses the rows of a task and the keys of a tile. It runs before tiling, which only reads the schedule. Schedules
// are independent of sequence lengths and batch, so that one kernel serves all.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Dialect/Attn/Analysis/ProductForm.h"
#include "saccade/Schedule/Passes.h"
#include "llvm/Support/Debug.h"

namespace saccade {
#define GEN_PASS_DEF_ASSIGNSCHEDULE
#include "saccade/Schedule/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

/// The largest tiles of attention.
static AttentionTiles largestTiles(const ProductTraits &product, const CPUTarget &target) {
  // Groups of rows in tile registers are larger, and so are the scores of a group. Processors with them have 2 MiB.
  if (product.inTiles)
    return {.rows = 512, .cols = 512, .cacheBytes = 2 * target.tiles.cacheBytes};
  return {target.tiles.rows, target.tiles.cols * product.kPackElements, target.tiles.cacheBytes};
}

attn::ScheduleAttr saccade::scheduleAttention(Type element, int64_t depth, int64_t valueDepth,
                                              const CPUTarget &target) {
  // A tile holds packed keys and values; a task also holds its queries and accumulator. Halve both until they fit in
  // cache; rows stay a multiple of the row group.
  const ProductTraits &product = chooseAttentionProduct(target, element);
  auto [rows, cols, most] = largestTiles(product, target);
  int64_t bits = attn::getScoreType(element).getWidth() / product.kPackElements * product.parts;
  int64_t columnBytes = (depth + valueDepth) * bits / 8;
  while ((cols > 64 || rows > 96) && (rows + cols) * columnBytes > most) {
    rows = rows > 96 && cols <= 512 ? rows / 2 : rows;
    cols = std::max<int64_t>(cols / 2, 64);
  }
  return attn::ScheduleAttr::get(element.getContext(), rows, cols, 0);
}

attn::ScheduleAttr saccade::scheduleDerivative(MLIRContext *context) {
  // Two tiles of pairs and the packed operands of a matmul fit in L2, and small tiles waste few pairs of a causal mask.
  return attn::ScheduleAttr::get(context, /*rows=*/96, /*cols=*/128, /*depth=*/0);
}

/// A chunk of keys and values that several tasks read should stay in the L2 cache, in bytes.
static constexpr int64_t chunkBytes = 1 << 20;

attn::SplitKVAttr saccade::scheduleSplitKV(MLIRContext *context, bool hasAdjacentHeads, int64_t bytesPerKey,
                                           int64_t tileRows) {
  // With more than eight queries per head, packing the keys is cheaper than broadcasting queries from registers for
  // every key. A task of one row group is bound by reading its keys and values. Consecutive tasks read the same chunk
  // of all heads. If these are adjacent in memory, the prefetcher of the processor reads beyond the head of a task, and
  // small chunks stay in L2 until the next task. So do the chunks of long keys, which several groups of heads may read.
  int64_t cols = hasAdjacentHeads ? 256 : 1024;
  while (cols > 256 && cols * bytesPerKey > chunkBytes)
    cols /= 2;
  return attn::SplitKVAttr::get(context, /*queries=*/8, /*rows=*/tileRows > 0 ? tileRows : rowGroup, cols,
                                /*all=*/false);
}

/// The bytes of a key and its value from which on a task has up to 64 rows: those of latent attention, whose heads
/// share one long key. Copying it to pairs takes as long as the products of 32 rows.
static constexpr int64_t longKeyBytes = 2048;

/// The rows of a split-KV task in tile registers, or 0. Copying keys and values to pairs takes as long as multiplying
/// four rows without tile registers.
static int64_t splitKVTileRows(attn::AttentionOp op, int64_t bytesPerKey, const CPUTarget &target) {
  Type element = getElementTypeOrSelf(op.getQuery());
  int64_t heads = attn::getStaticDimSize(op.getQuery(), op.getQueryDims(), attn::Dim::Head);
  int64_t kvHeads = attn::getStaticDimSize(op.getKey(), op.getKeyDims(), attn::Dim::Head);
  if (!chooseUnpackedProduct(target, element, /*permitsTiles=*/true).inTiles)
    return 0;
  // The lowering emits both kernels if the number of heads is not known.
  int64_t most = bytesPerKey >= longKeyBytes ? 64 : 32;
  if (ShapedType::isDynamic(heads) || ShapedType::isDynamic(kvHeads))
    return most == 64 ? 64 : 16;
  if (heads <= 4 * kvHeads)
    return 0;
  return heads <= 16 * kvHeads ? 16 : heads <= 32 * kvHeads ? 32 : most;
}

/// Whether the heads of a position are adjacent in memory, or in a page, which may have few positions.
static bool hasAdjacentHeads(attn::AttentionOp op) {
  Value keys = op.getKey();
  while (Operation *producer = keys.getDefiningOp()) {
    if (isa<attn::PagedOp>(producer))
      return true;
    // Dequantizations and views have the layout of their first operand.
    if (!isa<linalg::GenericOp, tensor::CastOp, tensor::ExtractSliceOp>(producer) || producer->getNumOperands() == 0)
      break;
    keys = producer->getOperand(0);
  }
  std::optional<unsigned> head = op.getKeyDims().position(attn::Dim::Head);
  return head && *op.getKeyDims().position(attn::Dim::Seq) < *head;
}

/// The rows of a task of a matmul with quantized weights, which each task dequantizes: more than those of other
/// matmuls.
static constexpr int64_t dequantizedRows = 576;

attn::ScheduleAttr saccade::scheduleContraction(MLIRContext *context, unsigned bits, const CPUTarget &target) {
  MatmulBlock block;
  return attn::ScheduleAttr::get(context, block.rows, bits == 64 ? block.columns / 2 : block.columns, block.depth);
}

/// The head size used to choose tiles if it is dynamic.
static int64_t depthOr(int64_t depth, int64_t fallback) { return ShapedType::isDynamic(depth) ? fallback : depth; }

void saccade::assignSchedule(attn::AttentionOp op, const CPUTarget &target) {
  int64_t depth = depthOr(attn::getStaticDimSize(op.getKey(), op.getKeyDims(), attn::Dim::Depth), 64);
  int64_t valueDepth = depthOr(attn::getStaticDimSize(op.getValue(), op.getValueDims(), attn::Dim::Depth), 64);
  op.setScheduleAttr(scheduleAttention(getElementTypeOrSelf(op.getQuery()), depth, valueDepth, target));
  int64_t bytesPerKey = (depth + valueDepth) * getElementTypeOrSelf(op.getKey()).getIntOrFloatBitWidth() / 8;
  attn::SplitKVAttr splitKV =
      scheduleSplitKV(op.getContext(), hasAdjacentHeads(op), bytesPerKey, splitKVTileRows(op, bytesPerKey, target));
  int64_t queries = attn::getStaticDimSize(op.getQuery(), op.getQueryDims(), attn::Dim::Seq);
  // The extent of ragged queries is the sum over all sequences.
  bool mayBeFew = ShapedType::isDynamic(queries) || op.getCuSeqlensQ() || queries <= splitKV.getQueries();
  // The low part is for derivatives, whose kernels compute scores again. Split-KV adds up their products in another
  // order, so that scores of 1e6 would differ by units from the log-sum-exp.
  if (!op.getSplitKvAttr() && mayBeFew && !op.getLseLow())
    op.setSplitKvAttr(splitKV);
}

namespace {

struct AssignSchedule : saccade::impl::AssignScheduleBase<AssignSchedule> {
  using AssignScheduleBase::AssignScheduleBase;

  void runOnOperation() override {
    const CPUTarget *cpu = requireCPUTarget(getOperation(), target);
    if (!cpu)
      return signalPassFailure();
    WalkResult refused = getOperation().walk([&](attn::AttentionOp op) {
      if (!op.getSplitKvAttr() || !op.getSplitKvAttr().getAll())
        return WalkResult::advance();
      if (op.getLseLow())
        op.emitOpError() << "has gradients or tangents, and all queries use split-KV, expected one of them";
      else if (op.getCuSeqlensQ())
        op.emitOpError() << "has ragged queries, and all of them use split-KV, expected a batch of sequences";
      else
        return WalkResult::advance();
      return WalkResult::interrupt();
    });
    if (refused.wasInterrupted())
      return signalPassFailure();
    getOperation().walk([&](attn::AttentionOp op) {
      if (op.getScheduleAttr())
        return;
      assignSchedule(op, *cpu);
      DEBUG_WITH_TYPE("attn-assign-schedule", llvm::dbgs() << op.getLoc() << ": " << op.getScheduleAttr() << ' '
                                                           << op.getSplitKvAttr() << '\n');
    });
    getOperation().walk([&](attn::DerivativeOpInterface op) {
      if (!op.getScheduleAttr())
        op.setScheduleAttr(scheduleDerivative(&getContext()));
    });
    getOperation().walk([&](linalg::LinalgOp op) {
      if (!isMatmul(op) || op->hasAttr("schedule"))
        return;
      unsigned bits = getElementTypeOrSelf(op.getDpsInits()[0]).getIntOrFloatBitWidth();
      attn::ScheduleAttr schedule = scheduleContraction(&getContext(), bits, *cpu);
      if (llvm::any_of(op.getDpsInputs(), [](Value input) { return input.getDefiningOp<attn::DequantizeOp>(); }))
        schedule = attn::ScheduleAttr::get(&getContext(), dequantizedRows, schedule.getCols(), schedule.getDepth());
      op->setAttr("schedule", schedule);
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
