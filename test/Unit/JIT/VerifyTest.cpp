//===- VerifyTest.cpp - Invalid IR of inserted passes -------------------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Pass/PassManager.h"
#include "saccade/JIT/Executable.h"
#include "saccade/Pipeline/Pipeline.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace saccade;

namespace {

/// Makes every function invalid: its type has no arguments, or its entry block has a terminator in front.
struct BreakFunctions : PassWrapper<BreakFunctions, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(BreakFunctions)
  StringRef getArgument() const override { return "test-break-functions"; }
  void runOnOperation() override {
    getOperation().walk([](func::FuncOp function) {
      function.setFunctionType(FunctionType::get(function.getContext(), {}, function.getFunctionType().getResults()));
    });
    getOperation().walk([](LLVM::LLVMFuncOp function) {
      if (!function.isExternal()) {
        OpBuilder builder = OpBuilder::atBlockBegin(&function.front());
        LLVM::UnreachableOp::create(builder, function.getLoc());
      }
    });
  }
};

TEST(Verify, InvalidIRIsReportedAfterThePassOrItsStage) {
  PassRegistration<BreakFunctions> registered;
  for (bool verifyEach : {true, false})
    for (StringRef stage : stageNames()) {
      CompileOptions options;
      options.verifyEach = verifyEach;
      options.insertions = {{stage.str(), "test-break-functions"}};
      auto executable = Executable::createFromText(
          "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n %y = arith.addf %x, %x : tensor<4xf32>\n"
          " return %y : tensor<4xf32>\n}",
          "program.mlir", options);
      ASSERT_FALSE(bool(executable)) << stage.str();
      std::string message = llvm::toString(executable.takeError());
      bool isLowered = stage == "codegen" || stage == "target";
      const char *expected = isLowered ? "must be the last operation" : "entry block must have 0 arguments";
      EXPECT_NE(std::string::npos, message.find(expected)) << stage.str() << ": " << message;
    }
}

} // namespace
