//===- LowerMatmulSM90.cpp - Matmuls on warpgroups of sm_90a ------------------===//
//
// Adds a kernel with bulk copies and wgmma beside that of each task that is a tile of a matmul. The other one, which
// the passes after this one lower, remains for operands that bulk copies do not support. If only the launch knows the
// number of tiles, a third kernel divides each among several CTAs, for launches with fewer tiles than multiprocessors.
//
//===----------------------------------------------------------------------===//
#include "MatmulItem.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Support/GPUTarget.h"
#include "saccade/Support/Kernels.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERMATMULSM90
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

namespace {

struct LowerMatmulSM90 : saccade::impl::LowerMatmulSM90Base<LowerMatmulSM90> {
  using LowerMatmulSM90Base::LowerMatmulSM90Base;

  void runOnOperation() override {
    const GPUTarget *gpu = requireGPUTarget(getOperation(), target);
    if (!gpu)
      return signalPassFailure();
    SymbolTable kernels(getOperation());
    for (auto kernel : llvm::to_vector(getOperation().getOps<func::FuncOp>())) {
      if (kernel->hasAttr(bulkKernelAttr) || kernel->hasAttr(bulkObstacleAttr))
        continue;
      std::string obstacle;
      std::optional<MatmulItem> found = findMatmulItem(kernel, obstacle);
      if (found && !found->shape(gpu->sharedBytes).fits()) {
        obstacle = "the sums of a tile do not fit in registers";
        found.reset();
      }
      if (!found) {
        if (!obstacle.empty())
          kernel->setAttr(bulkObstacleAttr, StringAttr::get(&getContext(), obstacle));
        continue;
      }
      bool isDivided = found->hasDynamicCount() && found->parts() > 1;
      func::FuncOp whole = copyForTensorMaps(kernel, kernels);
      func::FuncOp divided = isDivided ? copyForTensorMaps(kernel, kernels, "_parts") : func::FuncOp();
      auto setFamily = [](func::FuncOp copy, StringRef family) {
        copy->setAttr(familyAttr, StringAttr::get(copy.getContext(), family));
      };
      std::optional<MatmulItem> item = findMatmulItem(whole, obstacle);
      emitMatmulItem(whole, *item, item->shape(gpu->sharedBytes));
      setFamily(whole, "sm_90a, matmul");
      kernel->setAttr(bulkKernelAttr, whole.getNameAttr());
      if (!divided)
        continue;
      emitMatmulParts(divided, *findMatmulItem(divided, obstacle), gpu->sharedBytes);
      setFamily(divided, "sm_90a, matmul in parts");
      divided->setAttr(fewItemsAttr, UnitAttr::get(&getContext()));
      whole->setAttr(bulkKernelAttr, divided.getNameAttr());
    }
  }
};

} // namespace
