//===- Differentiate.cpp - Create functions of derivatives --------------------===//
//
// Creates the functions of functions with the attributes `attn.gradient` and `attn.jvp`. Runs on whole tensors, after
// calls are inlined and attention is raised, because both must be visible, and before the entries have shape functions.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Derivatives/GradientFunction.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"

namespace saccade::attn {
#define GEN_PASS_DEF_DIFFERENTIATE
#include "saccade/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace saccade::attn

using namespace mlir;
using namespace saccade::attn;

namespace {
struct Differentiate : saccade::attn::impl::DifferentiateBase<Differentiate> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto function : llvm::to_vector(getOperation().getOps<func::FuncOp>()))
      // Forward mode first: the gradient function adds results to the function.
      for (auto [attribute, suffix, create] : {std::tuple(jvpAttr, "_jvp", &createJvpFunction),
                                               std::tuple(gradientAttr, "_gradient", &createGradientFunction)}) {
        if (!function->hasAttr(attribute))
          continue;
        std::string name = (function.getName() + suffix).str();
        if (symbols.lookup(name)) {
          function.emitError() << "'" << function.getName() << "' cannot be differentiated: there is a function '"
                               << name << "' already";
          return signalPassFailure();
        }
        if (failed(create(function)))
          return signalPassFailure();
        function->removeAttr(attribute);
      }
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (unsigned i = 0; i < function.getNumArguments(); ++i)
        function.removeArgAttr(i, noGradientAttr);
  }
};
} // namespace
