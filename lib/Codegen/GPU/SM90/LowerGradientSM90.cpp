//===- LowerGradientSM90.cpp - Gradients on warpgroups of sm_90a --------------===//
//
// Adds a kernel with bulk copies and wgmma beside that of each task of a gradient. The other one, which
// LowerGradientSM80 lowers after this pass, remains for operands that bulk copies do not support.
//
//===----------------------------------------------------------------------===//
#include "GradientItem.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Support/GPUTarget.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERGRADIENTSM90
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

namespace {

struct LowerGradientSM90 : saccade::impl::LowerGradientSM90Base<LowerGradientSM90> {
  using LowerGradientSM90Base::LowerGradientSM90Base;

  void runOnOperation() override {
    const GPUTarget *gpu = requireGPUTarget(getOperation(), target);
    if (!gpu)
      return signalPassFailure();
    SymbolTable kernels(getOperation());
    for (auto kernel : llvm::to_vector(getOperation().getOps<func::FuncOp>())) {
      if (kernel->hasAttr(bulkKernelAttr))
        continue;
      std::string obstacle;
      if (!GradientItem::match(kernel, gpu->sharedBytes, obstacle)) {
        if (!obstacle.empty())
          kernel->setAttr(bulkObstacleAttr, StringAttr::get(&getContext(), obstacle));
        continue;
      }
      func::FuncOp copy = copyForTensorMaps(kernel, kernels);
      GradientItem::match(copy, gpu->sharedBytes, obstacle)->emit();
      kernel->setAttr(bulkKernelAttr, copy.getNameAttr());
    }
  }
};

} // namespace
