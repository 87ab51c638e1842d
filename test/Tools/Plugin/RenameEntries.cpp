//===- RenameEntries.cpp - A plugin with one pass -----------------------------===//
//
// The least that a pass of one's own takes: a pass, its flag, and the function that a tool asks for.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Tools/Plugins/PassPlugin.h"

namespace {
struct RenameEntries : mlir::PassWrapper<RenameEntries, mlir::OperationPass<mlir::func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(RenameEntries)
  llvm::StringRef getArgument() const override { return "test-rename-entries"; }
  llvm::StringRef getDescription() const override { return "put 'my_' before the name of every function"; }
  void runOnOperation() override { getOperation().setName(("my_" + getOperation().getName()).str()); }
};
} // namespace

extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT mlir::PassPluginLibraryInfo mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "RenameEntries", "1", [] { mlir::PassRegistration<RenameEntries>(); }};
}
