//===- LowerMatmulSM90.cpp - Matmuls on warpgroups of sm_90a ------------------===//
//
// Adds a kernel with bulk copies and wgmma beside that of each task that is a tile of a matmul. The other one, which
// the passes after this one lower, remains for operands that bulk copies do not support.
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
      std::optional<MatmulItem> found;
      if (!kernel->hasAttr(bulkKernelAttr))
        found = findMatmulItem(kernel);
      if (!found || !found->shape(gpu->sharedBytes).fits())
        continue;
      func::FuncOp copy = copyForTensorMaps(kernel, kernels);
      std::optional<MatmulItem> item = findMatmulItem(copy);
      emitMatmulItem(copy, *item, item->shape(gpu->sharedBytes));
      copy->setAttr(familyAttr, StringAttr::get(&getContext(), "sm_90a, matmul"));
      kernel->setAttr(bulkKernelAttr, copy.getNameAttr());
    }
  }
};

} // namespace
