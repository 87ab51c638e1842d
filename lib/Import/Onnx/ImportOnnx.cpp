//===- ImportOnnx.cpp - Translate ONNX ops --------------------------------===//
//
// Applies the ONNX translators to every function. Runs first, because no other pass handles these ops.
//
//===----------------------------------------------------------------------===//
#include "Onnx.h"
#include "saccade/Import/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_IMPORTONNX
#include "saccade/Import/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

static const frontend::Frontend &getFrontend() {
  static const frontend::Frontend frontend = [] {
    frontend::Frontend made{"onnx.", {}};
    onnx::addAttention(made);
    onnx::addCausalConvolution(made);
    onnx::addControl(made);
    onnx::addElementwise(made);
    onnx::addFlexAttention(made);
    onnx::addGathers(made);
    onnx::addGroupQueryAttention(made);
    onnx::addLinearAttention(made);
    onnx::addMatmuls(made);
    onnx::addMicrosoftAttention(made);
    onnx::addMicrosoftNorms(made);
    onnx::addMicrosoftQuantized(made);
    onnx::addReductions(made);
    onnx::addRotaryEmbedding(made);
    onnx::addScatters(made);
    onnx::addShapes(made);
    onnx::addSlices(made);
    return made;
  }();
  return frontend;
}

namespace {

struct ImportOnnx : saccade::impl::ImportOnnxBase<ImportOnnx> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (auto function : module.getOps<func::FuncOp>())
      if (failed(frontend::translate(function, getFrontend())))
        return signalPassFailure();
    for (NamedAttribute attribute : llvm::to_vector(module->getDiscardableAttrs()))
      if (attribute.getName().strref().starts_with("onnx."))
        module->removeDiscardableAttr(attribute.getName());
  }
};

} // namespace
