//===- StabilityTest.cpp - Mutation test of the softmax guard -----------------===//
#include "saccade/Dialect/Attn/Analysis/Stability.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "saccade/Bufferize/Bufferize.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"
#include "saccade/JIT/Executable.h"
#include "saccade/Pipeline/Passes.h"
#include "saccade/Pipeline/Source.h"
#include "saccade/Schedule/Passes.h"
#include "saccade/Tiling/Passes.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace mlir;
using namespace saccade;

namespace {

/// The mutant: asserts that all row maxima are finite, so that no code guards against −∞ − (−∞).
struct ClaimFiniteMax : PassWrapper<ClaimFiniteMax, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ClaimFiniteMax)
  void runOnOperation() override {
    getOperation().walk([](attn::AccumulateOp op) { setFiniteMax(op, attn::FiniteMax::EveryStep); });
  }
};

/// Compiles a parsed program to the end of code generation, without the passes that verify facts. The stages that are
/// left accept it as it is.
LogicalResult compileMutant(ModuleOp module) {
  const CPUTarget &target = *lookupCPUTarget("host");
  PassManager pm(module.getContext());
  buildTransformsPipeline(pm);
  buildSchedulePipeline(pm, target);
  buildTilingPipeline(pm);
  pm.addPass(std::make_unique<ClaimFiniteMax>());
  buildBufferizePipeline(pm, target);
  buildCPUCodegenPipeline(pm, target);
  pm.addPass(createMarkStage({"codegen", target.name.str()}));
  return pm.run(module);
}

/// Twenty queries and keys of size 8, all 1, values 3.
std::vector<float> attend(const std::string &clauses, bool isMutant) {
  std::string tensor = "tensor<20x8xf32>";
  std::string text = "func.func @attend(%q: " + tensor + ", %v: " + tensor + ") -> " + tensor +
                     " {\n %o = attn.attention %q[s,d], %q[s,d], %v[s,d] " + clauses + " : (" + tensor + ", " + tensor +
                     ", " + tensor + ") -> " + tensor + "\n return %o : " + tensor + "\n}";
  Source source;
  auto print = [](DiagnosticSeverity, StringRef message) { ADD_FAILURE() << message.str(); };
  if (failed(source.parse(llvm::MemoryBuffer::getMemBufferCopy(text, "program.mlir"), print)) ||
      (isMutant && failed(compileMutant(source.module()))))
    return {};
  auto executable = Executable::create(source.module(), CompileOptions());
  if (!executable) {
    ADD_FAILURE() << llvm::toString(executable.takeError());
    return {};
  }
  std::vector<float> ones(160, 1.0f), values(160, 3.0f), output(160, -1.0f);
  llvm::Error error = (*executable)
                          ->call(*(*executable)->lookup("attend"),
                                 {Buffer::compact(ones.data(), {20, 8}), Buffer::compact(values.data(), {20, 8})},
                                 {Buffer::compact(output.data(), {20, 8})});
  EXPECT_FALSE(bool(error)) << llvm::toString(std::move(error));
  return output;
}

// The first query attends to no key.
TEST(Stability, TheGuardIsWhatKeepsARowWithoutKeysFromNaN) {
  std::vector<float> guarded = attend("mask causal<-1>", /*isMutant=*/false), mutant = attend("mask causal<-1>", true);
  EXPECT_EQ(0.0f, guarded[0]);
  EXPECT_FLOAT_EQ(3.0f, guarded[8]);
  EXPECT_TRUE(std::isnan(mutant[0])) << mutant[0];
}

// If the guard is proved unnecessary, there is none, and the mutation has no effect.
TEST(Stability, AProvedSoftmaxNeedsNoGuard) {
  std::string capped =
      "mask causal<top_left> score(%s, %b, %h, %i, %j) {\n %r = math.tanh %s : f32\n attn.yield %r : f32 }";
  std::vector<float> proved = attend(capped, /*isMutant=*/false), claimed = attend(capped, true);
  EXPECT_EQ(proved, claimed);
  EXPECT_FLOAT_EQ(3.0f, proved[0]);
}

} // namespace
