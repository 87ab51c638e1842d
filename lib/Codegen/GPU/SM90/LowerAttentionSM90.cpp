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

/// A warpgroup that copies, and two or three that compute 64 rows each.
struct WarpgroupFamily : KernelFamily {
  explicit WarpgroupFamily(int64_t sharedBytes) : sharedBytes(sharedBytes) {}

  bool fits(const AttentionState &state) const override {
    return state.steps.size() == 1 && WarpgroupShape(state, sharedBytes).fits() &&
           isAttentionItem(state.steps.front(), &state);
  }
  LogicalResult emit(func::FuncOp kernel, AttentionState &state) const override {
    emitAttentionItem(kernel, state.steps.front(), &state, WarpgroupShape(state, sharedBytes));
    return success();
  }

  int64_t sharedBytes; ///< of a CTA
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

/// Lowers the only step of a kernel whose state is in memory, on one warpgroup. Returns the number of lowered steps.
static size_t lowerSplitKV(func::FuncOp kernel, const GPUTarget &target) {
  SmallVector<AccumulateOp> steps;
  kernel.walk([&](AccumulateOp op) { steps.push_back(op); });
  if (steps.size() != 1)
    return 0;
  WarpgroupShape shape(steps.front(), target.sharedBytes);
  bool fits = shape.fits() && steps.front().getScheduleAttr().getRows() <= shape.rows;
  if (!fits || !isAttentionItem(steps.front(), /*state=*/nullptr))
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
  if (hasStateInMemory(copy))
    lowered = lowerSplitKV(copy, target);
  else if (ends == 1)
    lowered = lowerAttentions(copy, WarpgroupFamily(target.sharedBytes));
  if (failed(lowered))
    return failure();
  if (*lowered)
    kernel->setAttr(bulkKernelAttr, copy.getNameAttr());
  else
    kernels.erase(copy);
  return success();
}
