//===- ImportTorch.cpp - Translate PyTorch ops ----------------------------===//
//
// Applies the PyTorch translators to every function. Runs first, because no other pass handles these ops.
//
//===----------------------------------------------------------------------===//
#include "Complex.h"
#include "Torch.h"
#include "saccade/Import/Common/Structured.h"
#include "saccade/Import/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_IMPORTTORCH
#include "saccade/Import/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

static const frontend::Frontend &getFrontend() {
  static const frontend::Frontend frontend = [] {
    frontend::Frontend made{"torch.", {}};
    torch::addAttention(made);
    torch::addComplex(made);
    torch::addCreations(made);
    torch::addElementwise(made);
    torch::addGathers(made);
    torch::addConcats(made);
    torch::addSlices(made);
    torch::addMatmuls(made);
    torch::addPrograms(made);
    torch::addReductions(made);
    torch::addRefusals(made);
    torch::addScatters(made);
    torch::addShapes(made);
    torch::addSizes(made);
    torch::addSorts(made);
    torch::addStrides(made);
    torch::addWindows(made);
    return made;
  }();
  return frontend;
}

namespace {

struct ImportTorch : saccade::impl::ImportTorchBase<ImportTorch> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (failed(frontend::translate(function, getFrontend())))
        return signalPassFailure();
      torch::eraseComplexCasts(function);
    }
  }
};

} // namespace
