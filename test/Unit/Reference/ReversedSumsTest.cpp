// Reversed summation equals forward summation of reversed operands.
#include "Harness.h"

using namespace saccade::reference;

namespace {

/// `tensor`, reversed along `dims`.
Tensor reversed(const Tensor &tensor, llvm::ArrayRef<int64_t> dims) {
  Tensor result = tensor;
  for (int64_t dim : dims) {
    int64_t inner = 1, extent = tensor.shape[dim];
    for (int64_t i = dim + 1; i < int64_t(tensor.shape.size()); ++i)
      inner *= tensor.shape[i];
    Tensor from = result;
    for (int64_t i = 0; i < result.size(); ++i) {
      int64_t position = i / inner % extent;
      result.values[i] = from.values[i + (extent - 1 - 2 * position) * inner];
    }
  }
  return result;
}

class ReversedSums : public Reference {
protected:
  /// Reversed sums on `arguments` must equal forward sums on `reversedArguments`, and some result must differ from
  /// forward sums on `arguments`.
  void expectReversal(llvm::StringRef source, llvm::ArrayRef<Tensor> arguments,
                      llvm::ArrayRef<Tensor> reversedArguments, llvm::ArrayRef<int64_t> reversedResultDims = {}) {
    auto actual = run(source, arguments, Precision::RoundedReversed);
    auto forward = run(source, arguments, Precision::Rounded);
    auto expected = run(source, reversedArguments, Precision::Rounded);
    bool differs = false;
    for (auto [i, result] : llvm::enumerate(expected)) {
      EXPECT_EQ(realsOf(reversed(result, reversedResultDims)), realsOf(actual[i])) << "result " << i;
      differs |= realsOf(forward[i]) != realsOf(actual[i]);
    }
    EXPECT_TRUE(differs);
  }
};

/// An attention of 8 queries and 256 keys that returns `returned`, %o or %l.
static std::string attentionOf(const std::string &name, const std::string &returned, const std::string &type) {
  std::string q = "tensor<8x16x" + name + ">", k = "tensor<256x16x" + name + ">";
  return "func.func @f(%q: " + q + ", %k: " + k + ", %v: " + k + ") -> " + type +
         "{ %o, %l = attn.attention %q[s,d], %k[s,d], %v[s,d] lse : (" + q + ", " + k + ", " + k +
         ") -> (tensor<8x16xf32>, tensor<8xf32>) return " + returned + " : " + type + " }";
}

TEST_F(ReversedSums, AttentionSumsOverDepthAndKeys) {
  for (const char *name : {"f32", "bf16"}) {
    Tensor queries = random({8, 16}, name), keys = random({256, 16}, name), values = random({256, 16}, name);
    expectReversal(attentionOf(name, "%l", "tensor<8xf32>"), {queries, keys, values},
                   {reversed(queries, {1}), reversed(keys, {0, 1}), reversed(values, {0})});
  }
  // The sum of the softmax is 256, so that dividing by it rounds nothing.
  Tensor queries = random({8, 16}), zeros = reals({256, 16}, std::vector<double>(256 * 16)), values = random({256, 16});
  expectReversal(attentionOf("f32", "%o", "tensor<8x16xf32>"), {queries, zeros, values},
                 {queries, zeros, reversed(values, {0})});
}

/// The weights 1 and 1/3 are rounded, not the probabilities 3/4 and 1/4, which bf16 has.
TEST_F(ReversedSums, WeightsAreRoundedBeforeTheDivision) {
  constexpr const char *source = R"(
    func.func @f(%q: tensor<1x1xbf16>, %k: tensor<2x1xbf16>, %v: tensor<2x1xbf16>) -> tensor<1x1xf32> {
      %o = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
          %number = arith.index_cast %j : index to i32
          %float = arith.sitofp %number : i32 to f32
          %log = arith.constant -1.09861231 : f32
          %r = arith.mulf %float, %log : f32
          attn.yield %r : f32
        } : (tensor<1x1xbf16>, tensor<2x1xbf16>, tensor<2x1xbf16>) -> tensor<1x1xf32>
      return %o : tensor<1x1xf32>
    })";
  Tensor zero = reals({1, 1}, {0}, "bf16"), zeros = reals({2, 1}, {0, 0}, "bf16"),
         values = reals({2, 1}, {0, 1}, "bf16");
  expectNear(run(source, {zero, zeros, values}, Precision::Rounded)[0], {0.25}, 1e-7);
  double third = roundTo(type("bf16"), 1.0 / 3);
  expectNear(run(source, {zero, zeros, values}, Precision::RoundedReversed)[0], {third / (4.0 / 3)}, 1e-7);
}

TEST_F(ReversedSums, AccumulateSumsOverDepthAndKeys) {
  constexpr const char *source = R"(
    func.func @f(%q: tensor<8x16xf32>, %k: tensor<50x16xf32>, %v: tensor<50x16xf32>, %a0: tensor<8x16xf32>,
        %m0: tensor<8xf32>, %s0: tensor<8xf32>) -> (tensor<8x16xf32>, tensor<8xf32>) {
      %c0 = arith.constant 0 : index
      %a, %m, %s = attn.accumulate %q[s,d], %k[s,d], %v[s,d] at(%c0, %c0, %c0, %c0)
          into(%a0, %m0, %s0 : tensor<8x16xf32>, tensor<8xf32>, tensor<8xf32>)
          : (tensor<8x16xf32>, tensor<50x16xf32>, tensor<50x16xf32>)
      return %a, %s : tensor<8x16xf32>, tensor<8xf32>
    })";
  Tensor q = random({8, 16}), k = random({50, 16}), v = random({50, 16});
  Tensor acc = random({8, 16}), max = random({8}), sum = reals({8}, {1, 1, 1, 1, 1, 1, 1, 1});
  expectReversal(source, {q, k, v, acc, max, sum},
                 {reversed(q, {1}), reversed(k, {0, 1}), reversed(v, {0}), acc, max, sum});
}

TEST_F(ReversedSums, ContractionsAndTheirBodies) {
  constexpr const char *contraction = R"(
    func.func @f(%a: tensor<5x40xf32>, %b: tensor<40x33xf32>, %c: tensor<5x33xf32>) -> tensor<5x33xf32> {
      %r = linalg.matmul ins(%a, %b : tensor<5x40xf32>, tensor<40x33xf32>) outs(%c : tensor<5x33xf32>) -> tensor<5x33xf32>
      return %r : tensor<5x33xf32>
    })";
  Tensor a = random({5, 40}), b = random({40, 33}), c = random({5, 33});
  expectReversal(contraction, {a, b, c}, {reversed(a, {1}), reversed(b, {0}), c});
  constexpr const char *reduction = R"(
    func.func @f(%a: tensor<5x40xf32>, %c: tensor<5xf32>) -> tensor<5xf32> {
      %r = linalg.reduce { arith.addf } ins(%a : tensor<5x40xf32>) outs(%c : tensor<5xf32>) dimensions = [1]
      return %r : tensor<5xf32>
    })";
  Tensor start = random({5});
  expectReversal(reduction, {a, start}, {reversed(a, {1}), start});
}

TEST_F(ReversedSums, OnlyFloatSumsAreReversed) {
  // The result is the last index: a reduction that is not a sum.
  constexpr const char *last = R"(
    func.func @f(%a: tensor<5xf32>, %c: tensor<index>) -> tensor<index> {
      %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>],
          iterator_types = ["reduction"]} ins(%a : tensor<5xf32>) outs(%c : tensor<index>) {
        ^bb0(%x: f32, %s: index):
          %i = linalg.index 0 : index
          linalg.yield %i : index
        } -> tensor<index>
      return %r : tensor<index>
    })";
  EXPECT_EQ(4, run(last, {random({5}), index(0)}, Precision::RoundedReversed)[0].values[0].integer);
}

TEST_F(ReversedSums, SoftmaxSum) {
  constexpr const char *source = R"(
    func.func @f(%a: tensor<7x60xf32>) -> tensor<7x60xf32> {
      %e = tensor.empty() : tensor<7x60xf32>
      %r = linalg.softmax dimension(1) ins(%a : tensor<7x60xf32>) outs(%e : tensor<7x60xf32>) -> tensor<7x60xf32>
      return %r : tensor<7x60xf32>
    })";
  Tensor a = random({7, 60});
  expectReversal(source, {a}, {reversed(a, {1})}, {1});
}

TEST_F(ReversedSums, EmptySums) {
  constexpr const char *source = R"(
    func.func @f(%q: tensor<2x?xf32>, %k: tensor<3x?xf32>, %v: tensor<3x1xf32>) -> tensor<2x1xf32> {
      %o = attn.attention %q[s,d], %k[s,d], %v[s,d] : (tensor<2x?xf32>, tensor<3x?xf32>, tensor<3x1xf32>)
        -> tensor<2x1xf32>
      return %o : tensor<2x1xf32>
    })";
  auto results =
      run(source, {reals({2, 0}, {}), reals({3, 0}, {}), reals({3, 1}, {1, 2, 3})}, Precision::RoundedReversed);
  expectNear(results[0], {2, 2}, 1e-6);
}

/// Small terms after a large one are lost in a chain. They count in later parts.
TEST_F(ReversedSums, PartsOf128TermsAreSummedApart) {
  constexpr const char *contraction = R"(
    func.func @f(%a: tensor<1x256xf32>, %b: tensor<256x1xf32>, %c: tensor<1x1xf32>) -> tensor<1x1xf32> {
      %r = linalg.matmul ins(%a, %b : tensor<1x256xf32>, tensor<256x1xf32>) outs(%c : tensor<1x1xf32>) -> tensor<1x1xf32>
      return %r : tensor<1x1xf32>
    })";
  std::vector<double> terms(256, 1), ones(256, 1);
  terms[0] = 0x1p24;
  Tensor zero = reals({1, 1}, {0});
  EXPECT_EQ(
      0x1p24 + 128,
      run(contraction, {reals({1, 256}, terms), reals({256, 1}, ones), zero}, Precision::Rounded)[0].values[0].real);
  // All weights are 1/256.
  constexpr const char *attention = R"(
    func.func @f(%q: tensor<1x1xf32>, %k: tensor<256x1xf32>) -> tensor<1x1xf32> {
      %o = attn.attention %q[s,d], %k[s,d], %k[s,d] : (tensor<1x1xf32>, tensor<256x1xf32>, tensor<256x1xf32>) -> tensor<1x1xf32>
      return %o : tensor<1x1xf32>
    })";
  EXPECT_EQ(0x1p16 + 0.5, run(attention, {zero, reals({256, 1}, terms)}, Precision::Rounded)[0].values[0].real);
}

} // namespace
