//===- LowerAttentionSM90.cpp - Attention on warpgroups of sm_90a -------------===//
//
// Adds a kernel with bulk copies and wgmma beside that of each task of attention. The other one, which the passes after
// this one lower, remains for operands that bulk copies do not support.
//
//===----------------------------------------------------------------------===//
#include "../KernelFamily.h"
#include "AttentionItem.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Support/GPUTarget.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERATTENTIONSM90
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

namespace {

/// Why a step, the only one of its kernel, has no kernel of warpgroups of this `shape`; empty if it has one. Properties
/// of the program come before those of its schedule, which follow from them. `state` is null if it is in memory.
std::string findObstacle(AccumulateOp step, const AttentionState *state, const WarpgroupShape &shape) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (!shape.element.isF16() && !shape.element.isBF16())
    os << "elements are " << shape.element;
  else if (int64_t size = std::max(shape.depth, shape.valueDepth); size > WarpgroupShape::maxHeadSize)
    os << "head size " << size << " exceeds " << WarpgroupShape::maxHeadSize;
  else if (shape.hasTallies)
    os << "the attention has a tally";
  else if (StringRef ofItem = findItemObstacle(step, state); !ofItem.empty())
    os << ofItem;
  else if (shape.stages < 2)
    os << "two tiles of keys and values do not fit in shared memory";
  else if (ScheduleAttr schedule = step.getScheduleAttr(); !state && schedule.getRows() > shape.rows)
    os << "a work item has " << schedule.getRows() << " rows, more than " << shape.rows;
  else if (!shape.fits())
    os << "a work item has " << shape.rows << " queries, not 128 or 192";
  return text;
}

/// A warpgroup that copies, and two or three that compute 64 rows each.
struct WarpgroupFamily : KernelFamily {
  /// `obstacle` becomes the reason for an attention that does not fit.
  WarpgroupFamily(int64_t sharedBytes, std::string &obstacle) : sharedBytes(sharedBytes), obstacle(obstacle) {}

  bool fits(const AttentionState &state) const override {
    if (state.steps.empty())
      return false;
    AccumulateOp step = state.steps.front();
    obstacle = state.steps.size() > 1 ? "keys are read more than once"
                                      : findObstacle(step, &state, WarpgroupShape(state, sharedBytes));
    return obstacle.empty();
  }
  LogicalResult emit(func::FuncOp kernel, AttentionState &state) const override {
    emitAttentionItem(kernel, state.steps.front(), &state, WarpgroupShape(state, sharedBytes));
    return success();
  }

  int64_t sharedBytes; ///< of a CTA
  std::string &obstacle;
};

struct LowerAttentionSM90 : saccade::impl::LowerAttentionSM90Base<LowerAttentionSM90> {
  using LowerAttentionSM90Base::LowerAttentionSM90Base;

  void runOnOperation() override {
    const GPUTarget *gpu = requireGPUTarget(getOperation(), target);
    if (!gpu)
      return signalPassFailure();
    for (auto kernel : llvm::to_vector(getOperation().getOps<func::FuncOp>()))
      if (failed(lowerAttentionSM90(kernel, *gpu)))
        return signalPassFailure();
  }
};

} // namespace

/// Lowers the only step of a kernel whose state is in memory, on one warpgroup. Returns the number of lowered steps;
/// `obstacle` becomes the reason if it is none.
static size_t lowerSplitKV(func::FuncOp kernel, const GPUTarget &target, std::string &obstacle) {
  SmallVector<AccumulateOp> steps;
  kernel.walk([&](AccumulateOp op) { steps.push_back(op); });
  if (steps.size() != 1)
    return 0;
  WarpgroupShape shape(steps.front(), target.sharedBytes);
  obstacle = findObstacle(steps.front(), /*state=*/nullptr, shape);
  if (!obstacle.empty())
    return 0;
  emitAttentionItem(kernel, steps.front(), /*state=*/nullptr, shape);
  return 1;
}

LogicalResult saccade::lowerAttentionSM90(func::FuncOp kernel, const GPUTarget &target) {
  if (kernel->hasAttr(bulkKernelAttr))
    return success();
  SymbolTable kernels(kernel->getParentOfType<mlir::gpu::GPUModuleOp>());
  func::FuncOp copy = copyForTensorMaps(kernel, kernels);
  int64_t ends = 0;
  copy.walk([&](FinalizeOp) { ++ends; });
  FailureOr<size_t> lowered = 0;
  std::string obstacle = ends > 1 ? "the kernel has several attentions" : "";
  if (hasStateInMemory(copy))
    lowered = lowerSplitKV(copy, target, obstacle);
  else if (ends == 1)
    lowered = lowerAttentions(copy, WarpgroupFamily(target.sharedBytes, obstacle));
  if (failed(lowered))
    return failure();
  if (*lowered) {
    kernel->setAttr(bulkKernelAttr, copy.getNameAttr());
    return success();
  }
  kernels.erase(copy);
  if (!obstacle.empty())
    kernel->setAttr(bulkObstacleAttr, StringAttr::get(kernel.getContext(), obstacle));
  return success();
}
