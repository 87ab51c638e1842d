//===- LowerAttentionSM80.cpp - Attention on the tensor cores of sm_80 --------===//
//
// Lowers attention to mma.sync with the online softmax in registers (FlashAttention-2; Dao 2023). It runs before the
// portable SIMT lowering, which handles the types and sizes that are not supported here.
//
//===----------------------------------------------------------------------===//
#include "../KernelFamily.h"
#include "../LiveRanges.h"
#include "../OutputEpilogue.h"
#include "../RowParts.h"
#include "AttentionStep.h"
#include "FinalizeRows.h"
#include "MergeWarps.h"
#include "saccade/Codegen/GPU/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERATTENTIONSM80
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

namespace {

/// Four warps of 32 rows, or of 16; steps of `keys`, if given.
struct TensorCoreFamily : KernelFamily {
  explicit TensorCoreFamily(std::optional<int64_t> keys) : keys(keys) {}
  std::optional<int64_t> keys;

  bool fits(const AttentionState &state) const override { return !state.steps.empty() && AttentionShape(state).fits(); }

  LogicalResult emit(func::FuncOp kernel, AttentionState &state) const override {
    AttentionShape shape(state);
    shape.givenKeys = keys;
    shape.hasBulkKernel = kernel->hasAttr(bulkKernelAttr);
    auto rowAt = [&](Emitter &e, int64_t r) { return Lane(e, shape).row(e, r); };
    auto isFirst = [&](Emitter &e) { return Lane(e, shape).isFirst(e); };
    PrivateState privateState = state.privatize("sm_80", shape.accElements(), {shape.rowsPerThread(), rowAt, isFirst});
    if (state.steps.size() == 1)
      mergeSections(state.steps.front());
    OpBuilder b(state.finalize.getContext());
    for (AccumulateOp step : state.steps) {
      b.setInsertionPoint(step);
      // The first of two passes over the keys computes max and sum only.
      bool hasResult = step.getAcc() == state.acc.getResult();
      computeStep({b, step.getLoc(), b.getF32Type()}, step, privateState, shape, hasResult);
    }
    b.setInsertionPoint(state.finalize);
    Emitter e{b, state.finalize.getLoc(), b.getF32Type()};
    linalg::GenericOp epilogue = findEpilogue(state.finalize.getOutput());
    recomputeOperands(e, state.finalize);
    if (epilogue)
      epilogue.getDpsInitsMutable()[0].set(state.finalize.getOutput());
    finalizeRows(e, state.finalize, privateState, shape);
    state.erase();
    return success();
  }
};

void lowerSplitKVOnTensorCores(func::FuncOp kernel) {
  SmallVector<AccumulateOp> steps;
  kernel.walk([&](AccumulateOp op) { steps.push_back(op); });
  for (AccumulateOp step : steps) {
    AttentionShape shape(step);
    // The SIMT kernel merges the other parts of a state, and has the second pass of a two-pass softmax.
    if (!shape.fits() || step.getFinal() || step.getDpsInits().size() > 3)
      continue;
    step = computeInParts(step, shape.rows);
    OpBuilder b(step);
    Emitter e{b, step.getLoc(), b.getF32Type()};
    PrivateState privateState = emptyPrivateState(e, kernel, step, shape.accElements(), shape.rowsPerThread());
    computeStep(e, step, privateState, shape, /*hasResult=*/true);
    mergeWarps(e, step, privateState, shape);
    kernel->setAttr(familyAttr, b.getStringAttr(nameFamily("sm_80, split-KV", step)));
    eraseStep(step);
  }
}

struct LowerAttentionSM80 : saccade::impl::LowerAttentionSM80Base<LowerAttentionSM80> {
  void runOnOperation() override {
    if (failed(lowerAttentionSM80(getOperation())))
      signalPassFailure();
  }
};

} // namespace

LogicalResult saccade::lowerAttentionSM80(func::FuncOp kernel, std::optional<int64_t> keys) {
  if (!hasStateInMemory(kernel))
    return lowerAttentions(kernel, TensorCoreFamily(keys));
  lowerSplitKVOnTensorCores(kernel);
  return success();
}
