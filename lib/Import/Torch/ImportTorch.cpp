//===- ImportTorch.cpp - Translate ops of PyTorch -----------------------------===//
//
// Gathers the translators of all operators into one door and leads every function through it. It stands in front of
// everything else: no other pass knows these ops.
//
//===----------------------------------------------------------------------===//
#include "Torch.h"
#include "saccade/Import/Common/Structured.h"
#include "saccade/Import/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_IMPORTTORCH
#include "saccade/Import/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

static const door::Door &getDoor() {
  static const door::Door door = [] {
    door::Door made{"torch.", {}};
    torch::addAttention(made);
    torch::addCreations(made);
    torch::addElementwise(made);
    torch::addGathers(made);
    torch::addJoins(made);
    torch::addParts(made);
    torch::addProducts(made);
    torch::addReductions(made);
    torch::addShapes(made);
    torch::addSizes(made);
    torch::addStrides(made);
    return made;
  }();
  return door;
}

namespace {

struct ImportTorch : saccade::impl::ImportTorchBase<ImportTorch> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (failed(door::translate(function, getDoor())))
        return signalPassFailure();
  }
};

} // namespace
