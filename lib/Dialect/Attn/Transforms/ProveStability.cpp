//===- ProveStability.cpp - Prove that row maxima are finite ------------------===//
//
// Sets the attribute `attn.stability` on each attention. Runs last in its stage: regions are final, and ops are not
// tiled.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "saccade/Dialect/Attn/Analysis/Stability.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"

namespace saccade::attn {
#define GEN_PASS_DEF_PROVESTABILITY
#include "saccade/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace saccade::attn

using namespace mlir;
using namespace saccade::attn;

namespace {

struct ProveStability : saccade::attn::impl::ProveStabilityBase<ProveStability> {
  using ProveStabilityBase::ProveStabilityBase;

  void runOnOperation() override {
    getOperation().walk([&](AttentionOp op) {
      Stability stability = analyzeStability(op);
      setFiniteMax(op, stability.finiteMax);
      if (remarks)
        op.emitRemark() << "softmax is " << (stability.finiteMax == FiniteMax::Never ? "guarded: " : "proved stable: ")
                        << stability.reason;
    });
  }
};

} // namespace
