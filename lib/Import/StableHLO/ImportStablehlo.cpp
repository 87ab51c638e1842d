//===- ImportStablehlo.cpp - Translate StableHLO ops ----------------------===//
//
// Inlines calls and applies the StableHLO translators to the remaining functions. Runs first, because no other pass
// handles these ops.
//
//===----------------------------------------------------------------------===//
#include "StableHLO.h"
#include "mlir/IR/SymbolTable.h"
#include "saccade/Import/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_IMPORTSTABLEHLO
#include "saccade/Import/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

static const frontend::Frontend &getFrontend() {
  static const frontend::Frontend frontend = [] {
    frontend::Frontend made{"stablehlo.", {}, {"chlo."}};
    stablehlo::addControl(made);
    stablehlo::addElementwise(made);
    stablehlo::addGathers(made);
    stablehlo::addMatmuls(made);
    stablehlo::addReductions(made);
    stablehlo::addShapes(made);
    stablehlo::addSlices(made);
    return made;
  }();
  return frontend;
}

/// Removes attributes of JAX, XLA and StableHLO from modules, functions and arguments.
static void dropForeignAttributes(Operation *op) {
  auto isForeign = [](NamedAttribute attribute) {
    return llvm::any_of(ArrayRef<StringRef>{"jax.", "mhlo.", "sdy.", "stablehlo.", "tf."},
                        [&](StringRef prefix) { return attribute.getName().strref().starts_with(prefix); });
  };
  for (NamedAttribute attribute : llvm::to_vector(op->getDiscardableAttrs()))
    if (isForeign(attribute))
      op->removeDiscardableAttr(attribute.getName());
  auto keepOwn = [&](DictionaryAttr attributes) {
    SmallVector<NamedAttribute> kept = llvm::to_vector(attributes.getValue());
    llvm::erase_if(kept, isForeign);
    return DictionaryAttr::get(op->getContext(), kept);
  };
  auto function = dyn_cast<func::FuncOp>(op);
  for (unsigned i = 0; function && i < function.getNumArguments(); ++i)
    if (DictionaryAttr attributes = function.getArgAttrDict(i))
      function.setArgAttrs(i, keepOwn(attributes));
  for (unsigned i = 0; function && i < function.getNumResults(); ++i)
    if (DictionaryAttr attributes = function.getResultAttrDict(i))
      function.setResultAttrs(i, keepOwn(attributes));
}

namespace {

struct ImportStablehlo : saccade::impl::ImportStablehloBase<ImportStablehlo> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    WalkResult found = module.walk(
        [](Operation *op) { return getFrontend().nameOf(op) ? WalkResult::interrupt() : WalkResult::advance(); });
    if (!found.wasInterrupted())
      return;
    SymbolTable symbols(module);
    for (auto function : module.getOps<func::FuncOp>())
      if (failed(stablehlo::inlineCalls(function, symbols)))
        return signalPassFailure();
    // Private functions have no calls left.
    for (auto function : llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      if (function.isPrivate() && !function.isExternal())
        symbols.erase(function);
    WalkResult typed = module.walk(
        [](Operation *op) { return WalkResult(getFrontend().nameOf(op) ? frontend::verifyTypes(op) : success()); });
    if (typed.wasInterrupted())
      return signalPassFailure();
    dropForeignAttributes(module);
    for (auto function : module.getOps<func::FuncOp>()) {
      if (failed(frontend::translate(function, getFrontend())))
        return signalPassFailure();
      dropForeignAttributes(function);
    }
  }
};

} // namespace
