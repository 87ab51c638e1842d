//===- LowerAttentionSM90.cpp - Attention on warpgroups of sm_90a -------------===//
//
// Adds a kernel with bulk copies and wgmma beside that of each task of attention. The other one, which the passes after
// this one lower, remains for operands that bulk copies do not support.
//
//===----------------------------------------------------------------------===//
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

struct LowerAttentionSM90 : saccade::impl::LowerAttentionSM90Base<LowerAttentionSM90> {
  using LowerAttentionSM90Base::LowerAttentionSM90Base;

  void runOnOperation() override {
    const GPUTarget *gpu = requireGPUTarget(getOperation(), target);
    if (!gpu)
      return signalPassFailure();
    SymbolTable kernels(getOperation());
    for (auto kernel : llvm::to_vector(getOperation().getOps<func::FuncOp>())) {
      if (hasStateInMemory(kernel))
        continue;
      func::FuncOp copy = kernel.clone();
      copy.setName((kernel.getName() + "_sm_90a").str());
      kernels.insert(copy);
      FailureOr<bool> isLowered = lower(copy, gpu->sharedBytes);
      if (failed(isLowered))
        return signalPassFailure();
      if (*isLowered)
        kernel->setAttr(bulkKernelAttr, copy.getNameAttr());
      else
        kernels.erase(copy);
    }
  }

  static FailureOr<bool> lower(func::FuncOp kernel, int64_t sharedBytes) {
    int64_t ends = 0;
    kernel.walk([&](FinalizeOp) { ++ends; });
    if (ends != 1)
      return false;
    auto fits = [&](const AttentionState &state) {
      return !state.steps.empty() && WarpgroupShape(state, sharedBytes).fits();
    };
    FailureOr<SmallVector<AttentionState>> states = findStates(kernel, fits);
    if (failed(states))
      return failure();
    if (states->empty())
      return false;
    AttentionState &state = states->front();
    std::optional<MappedOperands> operands = findMappedOperands(kernel, state);
    if (operands)
      emitAttentionItem(kernel, state, WarpgroupShape(state, sharedBytes), *operands);
    return operands.has_value();
  }
};

} // namespace
