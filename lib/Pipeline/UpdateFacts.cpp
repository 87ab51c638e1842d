//===- UpdateFacts.cpp - Prove again what attributes claim --------------------===//
#include "mlir/IR/BuiltinOps.h"
#include "saccade/Dialect/Attn/Analysis/Stability.h"
#include "saccade/Pipeline/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_UPDATEFACTS
#include "saccade/Pipeline/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

namespace {
struct UpdateFacts : saccade::impl::UpdateFactsBase<UpdateFacts> {
  void runOnOperation() override {
    getOperation().walk([](Operation *op) {
      if (auto attention = dyn_cast<attn::AttentionOp>(op); attention && op->hasAttr(attn::stabilityAttr))
        setFiniteMax(attention, analyzeStability(attention).finiteMax);
      // A weaker proof is not claimed instead: it supposes an order of steps that is not known here.
      auto step = dyn_cast<attn::AccumulateOp>(op);
      if (step && op->hasAttr(attn::finiteMaxAttr) && analyzeStability(step).finiteMax < getFiniteMax(step))
        setFiniteMax(step, attn::FiniteMax::Never);
    });
    markAllAnalysesPreserved();
  }
};
} // namespace
