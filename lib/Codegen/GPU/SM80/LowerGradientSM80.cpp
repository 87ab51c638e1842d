//===- LowerGradientSM80.cpp - Gradients on the tensor cores of sm_80 ---------===//
//
// Lowers the steps of gradients whose products fit in registers. It runs before LowerMatmulSM80 and LowerLinalgSIMT,
// which handle all others op by op.
//
//===----------------------------------------------------------------------===//
#include "GradientKernel.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Support/Kernels.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERGRADIENTSM80
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

namespace {

struct LowerGradientSM80 : saccade::impl::LowerGradientSM80Base<LowerGradientSM80> {
  void runOnOperation() override {
    SmallVector<GradientStep> steps;
    OpBuilder b(&getContext());
    getOperation().walk([&](linalg::GenericOp op) {
      std::string obstacle;
      std::optional<GradientStep> step = GradientStep::match(op, &obstacle);
      if (step && fitsRegisters(*step, &obstacle))
        steps.push_back(*step);
      else if (op->hasAttr(gradientPairsAttr))
        getOperation()->setAttr(registerObstacleAttr, b.getStringAttr(obstacle));
    });
    for (GradientStep &step : steps) {
      lowerGradient(b, step);
      getOperation()->setAttr(familyAttr, b.getStringAttr("sm_80, gradient"));
    }
  }
};

} // namespace
