//===- CountWorkTest.cpp - FLOPs and tokens of whole programs -----------------===//
#include "saccade/Dialect/Attn/Analysis/CountWork.h"
#include "mlir/Parser/Parser.h"
#include "saccade/Pipeline/Pipeline.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace saccade;

namespace {

/// Counts the only function of `text`.
std::optional<attn::Work> count(llvm::StringRef text, llvm::ArrayRef<attn::WorkArgument> arguments) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  if (!module) {
    ADD_FAILURE() << "does not parse";
    return std::nullopt;
  }
  return attn::countWork(*module->getOps<func::FuncOp>().begin(), arguments);
}

TEST(CountWork, AttentionTakesBothProductsWithTheirOwnDepths) {
  auto work = count(R"(
    func.func @f(%q: tensor<?x8x?x64xf32>, %k: tensor<?x2x?x64xf32>, %v: tensor<?x2x?x32xf32>) -> tensor<?x8x?x32xf32> {
      %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<top_left>
        : (tensor<?x8x?x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x32xf32>) -> tensor<?x8x?x32xf32>
      return %o : tensor<?x8x?x32xf32>
    })",
                    {{{3, 8, 10, 64}}, {{3, 2, 20, 64}}, {{3, 2, 20, 32}}});
  ASSERT_TRUE(work.has_value());
  EXPECT_EQ(2 * 3 * 8 * 10 * 20 * (64 + 32), work->flops);
  EXPECT_EQ(3 * 10, work->tokens);
}

TEST(CountWork, ContractionsCountAndElementwiseDoesNot) {
  auto work = count(R"(
    func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x16xf32>, %c: tensor<?x16xf32>) -> tensor<?x16xf32> {
      %p = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x16xf32>) outs(%c : tensor<?x16xf32>) -> tensor<?x16xf32>
      %s = linalg.add ins(%p, %c : tensor<?x16xf32>, tensor<?x16xf32>) outs(%c : tensor<?x16xf32>) -> tensor<?x16xf32>
      return %s : tensor<?x16xf32>
    })",
                    {{{5, 7}}, {{7, 16}}, {{5, 16}}});
  ASSERT_TRUE(work.has_value());
  EXPECT_EQ(2 * 5 * 7 * 16, work->flops);
  EXPECT_EQ(0, work->tokens);
}

TEST(CountWork, ExtentsAreFollowedThroughReshapesAndScalars) {
  auto work = count(R"(
    func.func @f(%x: tensor<?x?x24xf32>, %w: tensor<24x24xf32>, %n: index) -> tensor<?x24xf32> {
      %e = tensor.empty(%n) : tensor<?x24xf32>
      %y = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x?x24xf32> into tensor<?x24xf32>
      %z = tensor.extract_slice %y[0, 0] [%n, 24] [1, 1] : tensor<?x24xf32> to tensor<?x24xf32>
      %p = linalg.matmul ins(%z, %w : tensor<?x24xf32>, tensor<24x24xf32>) outs(%e : tensor<?x24xf32>) -> tensor<?x24xf32>
      return %p : tensor<?x24xf32>
    })",
                    {{{4, 5, 24}}, {{24, 24}}, {{}, 9}});
  ASSERT_TRUE(work.has_value());
  EXPECT_EQ(2 * 9 * 24 * 24, work->flops);
}

TEST(CountWork, ExtentsThatAreDataGiveNoCount) {
  auto work = count(R"(
    func.func @f(%a: tensor<4x4xf32>, %n: tensor<1xindex>) -> tensor<?x4xf32> {
      %c0 = arith.constant 0 : index
      %rows = tensor.extract %n[%c0] : tensor<1xindex>
      %e = tensor.empty(%rows) : tensor<?x4xf32>
      %s = tensor.extract_slice %a[0, 0] [%rows, 4] [1, 1] : tensor<4x4xf32> to tensor<?x4xf32>
      %p = linalg.matmul ins(%s, %a : tensor<?x4xf32>, tensor<4x4xf32>) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
      return %p : tensor<?x4xf32>
    })",
                    {{{4, 4}}, {{1}}});
  EXPECT_FALSE(work.has_value());
}

} // namespace
