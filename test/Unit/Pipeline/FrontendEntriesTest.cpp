//===- FrontendEntriesTest.cpp - Functions that a frontend makes --------------===//
//
// The functions that a frontend makes of ops of a module are entries of the program before it is compiled.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/Pass.h"
#include "saccade/Dialect/Attn/Analysis/Signatures.h"
#include "saccade/Import/Import.h"
#include "saccade/Pipeline/RunPipeline.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace saccade;

namespace {

/// Translates "unittest.make"() {name = "f"} to a function of this name that returns its argument.
struct MakeFunctions : PassWrapper<MakeFunctions, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(MakeFunctions)
  void runOnOperation() override {
    for (Operation &op : llvm::make_early_inc_range(*getOperation().getBody())) {
      if (op.getName().getStringRef() != "unittest.make")
        continue;
      OpBuilder b(&op);
      auto type = RankedTensorType::get({4}, b.getF32Type());
      auto name = op.getAttrOfType<StringAttr>("name");
      auto function = func::FuncOp::create(b, op.getLoc(), name, b.getFunctionType({type}, {type}));
      b.setInsertionPointToStart(function.addEntryBlock());
      func::ReturnOp::create(b, op.getLoc(), function.getArguments());
      op.erase();
    }
  }
};

TEST(FrontendEntries, AreThoseOfTheImportedProgram) {
  registerFrontend(
      {"unittest", /*isRegistered=*/false, [](OpPassManager &pm) { pm.addPass(std::make_unique<MakeFunctions>()); }});
  MLIRContext context;
  context.loadDialect<func::FuncDialect>();
  context.allowUnregisteredDialects();
  auto module = parseSourceString<ModuleOp>("\"unittest.make\"() {name = \"made\"} : () -> ()\n"
                                            "func.func @written(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
                                            "  return %x : tensor<4xf32>\n}",
                                            &context);
  ASSERT_TRUE(module);
  EXPECT_EQ(attn::getSignatures(*module).size(), 1u);
  CompileOptions options;
  ASSERT_TRUE(succeeded(addGradientFunctions(*module, options)));
  std::vector<std::string> names;
  for (const attn::Signature &signature : attn::getSignatures(*module))
    names.push_back(std::string(signature.name));
  EXPECT_EQ(names, (std::vector<std::string>{"made", "written"}));
}

} // namespace
