//===- Passes.cpp - A plugin for tests ----------------------------------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "saccade/Dialect/Attn/IR/AttnDialect.h"
#include <csignal>

using namespace mlir;

namespace {

struct RenameEntries : PassWrapper<RenameEntries, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(RenameEntries)
  StringRef getArgument() const override { return "test-rename-entries"; }
  StringRef getDescription() const override { return "put 'my_' before the name of every function"; }
  void runOnOperation() override { getOperation().setName(("my_" + getOperation().getName()).str()); }
};

struct DoNothing : PassWrapper<DoNothing, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DoNothing)
  StringRef getArgument() const override { return "test-do-nothing"; }
  StringRef getDescription() const override { return "change nothing, and do not say so"; }
  void runOnOperation() override {}
};

struct Fail : PassWrapper<Fail, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(Fail)
  StringRef getArgument() const override { return "test-fail"; }
  StringRef getDescription() const override { return "fail without a reason"; }
  void runOnOperation() override { signalPassFailure(); }
};

struct Crash : PassWrapper<Crash, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(Crash)
  StringRef getArgument() const override { return "test-crash"; }
  StringRef getDescription() const override { return "crash"; }
  void runOnOperation() override { std::raise(SIGSEGV); }
};

struct DropShapeFunctions : PassWrapper<DropShapeFunctions, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DropShapeFunctions)
  StringRef getArgument() const override { return "test-drop-shape-functions"; }
  StringRef getDescription() const override { return "erase the shape functions of entries"; }
  void runOnOperation() override {
    for (auto function : llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>()))
      if (function->hasAttr("attn.shapes_of"))
        function.erase();
  }
};

} // namespace

void registerHideKeys();

extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT PassPluginLibraryInfo mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "SaccadeTestPlugin", "1", [] {
            PassRegistration<RenameEntries>();
            PassRegistration<DoNothing>();
            PassRegistration<Fail>();
            PassRegistration<Crash>();
            PassRegistration<DropShapeFunctions>();
            registerHideKeys();
          }};
}

/// A mask of its own, and a second `causal`.
extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT DialectPluginLibraryInfo mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "SaccadeTestPlugin", "1", [](DialectRegistry *registry) {
            registry->addExtension(+[](MLIRContext *, saccade::attn::AttnDialect *dialect) {
              auto all = [](OpAsmParser &, SMLoc, ImplicitLocOpBuilder &, const saccade::attn::RegionArguments &,
                            Value &) -> ParseResult { return success(); };
              for (StringRef name : {"everything", "everything", "causal"})
                dialect->addMaskSugar({name, name, all});
            });
          }};
}
