// attn.attention: hand-computed cases, and every clause compared with the definition.
#include "Formula.h"
#include "Harness.h"

using namespace saccade::reference;

namespace {

class Attention : public Reference {
protected:
  /// Runs `source` on `arguments`, and compares output and log-sum-exp with `formula`.
  void expectFormula(llvm::StringRef source, llvm::ArrayRef<Tensor> arguments, Formula<double> formula,
                     double tolerance = 1e-13) {
    formula.compute();
    auto results = run(source, arguments);
    ASSERT_EQ(2u, results.size());
    expectNear(results[0], formula.output, tolerance);
    expectNear(results[1], formula.lse, tolerance);
  }
};

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

TEST_F(Attention, TwoQueriesOnTwoKeysByHand) {
  // Scores ln 3 and 0 for query 0, 0 and ln 3 for query 1: weights 3/4 and 1/4.
  double ln3 = std::log(3.0);
  auto results = run(R"(
    func.func @two(%q: tensor<2x2xf64>, %k: tensor<2x2xf64>, %v: tensor<2x3xf64>) -> (tensor<2x3xf64>, tensor<2xf64>) {
      %o, %l = attn.attention %q[s,d], %k[s,d], %v[s,d] scale(1.0) lse
        : (tensor<2x2xf64>, tensor<2x2xf64>, tensor<2x3xf64>) -> (tensor<2x3xf64>, tensor<2xf64>)
      return %o, %l : tensor<2x3xf64>, tensor<2xf64>
    })",
                     {reals({2, 2}, {ln3, 0, 0, ln3}, "f64"), reals({2, 2}, {1, 0, 0, 1}, "f64"),
                      reals({2, 3}, {4, 0, 1, 8, 4, 1}, "f64")});
  expectNear(results[0], {5, 1, 1, 7, 3, 1});
  expectNear(results[1], {std::log(4.0), std::log(4.0)});
}

TEST_F(Attention, CausalByHand) {
  // Query 0 attends to key 0 only; query 1 attends to both, with equal scores.
  auto results = run(R"(
    func.func @causal(%q: tensor<2x1xf32>, %k: tensor<2x1xf32>, %v: tensor<2x1xf32>) -> (tensor<2x1xf32>, tensor<2xf32>) {
      %o, %l = attn.attention %q[s,d], %k[s,d], %v[s,d] mask causal<top_left> lse
        : (tensor<2x1xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> (tensor<2x1xf32>, tensor<2xf32>)
      return %o, %l : tensor<2x1xf32>, tensor<2xf32>
    })",
                     {reals({2, 1}, {2, 2}), reals({2, 1}, {3, 3}), reals({2, 1}, {10, 20})});
  expectNear(results[0], {10, 15});
  expectNear(results[1], {6, 6 + std::log(2.0)});
}

constexpr const char *plain = R"(
  func.func @plain(%q: tensor<?x?x?x?xf32>, %k: tensor<?x?x?x?xf32>, %v: tensor<?x?x?x?xf32>)
      -> (tensor<?x?x?x?xf32>, tensor<?x?x?xf32>) {
    %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] lse
      : (tensor<?x?x?x?xf32>, tensor<?x?x?x?xf32>, tensor<?x?x?x?xf32>) -> (tensor<?x?x?x?xf32>, tensor<?x?x?xf32>)
    return %o, %l : tensor<?x?x?x?xf32>, tensor<?x?x?xf32>
  })";

TEST_F(Attention, ValuesMayBeWiderThanKeys) {
  Tensor q = random({2, 3, 4, 5}), k = random({2, 3, 7, 5}), v = random({2, 3, 7, 9});
  expectFormula(plain, {q, k, v}, Formula<double>::of(q, k, v));
}

TEST_F(Attention, GroupedQueryHeadsShareAKVHead) {
  Tensor q = random({2, 6, 4, 5}), k = random({2, 2, 7, 5}), v = random({2, 2, 7, 5});
  expectFormula(plain, {q, k, v}, Formula<double>::of(q, k, v));
  // Query heads 0..2 use KV head 0 and 3..5 use KV head 1: changing KV head 1 changes the last three only.
  auto before = run(plain, {q, k, v})[0];
  for (int64_t i = 7 * 5; i < 2 * 7 * 5; ++i)
    k.values[i].real += 1 + i;
  auto after = run(plain, {q, k, v})[0];
  for (int64_t i = 0; i < 6 * 4 * 5; ++i)
    EXPECT_EQ(i < 3 * 4 * 5, before.values[i].real == after.values[i].real) << i;
}

TEST_F(Attention, NoKeysGiveZero) {
  auto results = run(plain, {random({1, 2, 3, 4}), random({1, 2, 0, 4}), random({1, 2, 0, 4})});
  expectNear(results[0], std::vector<double>(24, 0.0));
  expectNear(results[1], std::vector<double>(6, -INFINITY));
}

TEST_F(Attention, Layouts) {
  // q[b,s,h,d], k[d,s] and v[s,d] without batch and head, output [d,h,s,b].
  Tensor q = random({1, 3, 2, 4}), k = random({4, 5}), v = random({5, 6});
  auto results = run(R"(
    func.func @layouts(%q: tensor<1x3x2x4xf32>, %k: tensor<4x5xf32>, %v: tensor<5x6xf32>)
        -> (tensor<6x2x3x1xf32>, tensor<1x2x3xf32>) {
      %o, %l = attn.attention %q[b,s,h,d], %k[d,s], %v[s,d] out[d,h,s,b] lse
        : (tensor<1x3x2x4xf32>, tensor<4x5xf32>, tensor<5x6xf32>) -> (tensor<6x2x3x1xf32>, tensor<1x2x3xf32>)
      return %o, %l : tensor<6x2x3x1xf32>, tensor<1x2x3xf32>
    })",
                     {q, k, v});
  Tensor q2(q.elementType, {1, 2, 3, 4}), k2(k.elementType, {1, 1, 5, 4}), v2 = v;
  v2.shape = {1, 1, 5, 6};
  for (int64_t s = 0; s < 3; ++s)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t d = 0; d < 4; ++d)
        q2.values[(h * 3 + s) * 4 + d] = q.values[(s * 2 + h) * 4 + d];
  for (int64_t s = 0; s < 5; ++s)
    for (int64_t d = 0; d < 4; ++d)
      k2.values[s * 4 + d] = k.values[d * 5 + s];
  auto formula = Formula<double>::of(q2, k2, v2);
  formula.compute();
  expectNear(results[1], formula.lse);
  for (int64_t d = 0; d < 6; ++d)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t s = 0; s < 3; ++s)
        EXPECT_NEAR(results[0].values[(d * 2 + h) * 3 + s].real, formula.output[(h * 3 + s) * 6 + d], 1e-14);
}

constexpr const char *bottomRight = R"(
  func.func @bottom_right(%q: tensor<?x?x?x?xf32>, %k: tensor<?x?x?x?xf32>, %v: tensor<?x?x?x?xf32>)
      -> (tensor<?x?x?x?xf32>, tensor<?x?x?xf32>) {
    %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<bottom_right> lse
      : (tensor<?x?x?x?xf32>, tensor<?x?x?x?xf32>, tensor<?x?x?x?xf32>) -> (tensor<?x?x?x?xf32>, tensor<?x?x?xf32>)
    return %o, %l : tensor<?x?x?x?xf32>, tensor<?x?x?xf32>
  })";

TEST_F(Attention, BottomRightAlignsTheLastQueryWithTheLastKey) {
  for (auto [queries, keys] : {std::pair(3, 7), std::pair(7, 3), std::pair(4, 4)}) {
    Tensor q = random({1, 2, queries, 4}), k = random({1, 2, keys, 4}), v = random({1, 2, keys, 4});
    auto formula = Formula<double>::of(q, k, v);
    formula.mask = [=, shift = keys - queries](int64_t, int64_t, int64_t i, int64_t j) { return j <= i + shift; };
    expectFormula(bottomRight, {q, k, v}, formula);
  }
}

TEST_F(Attention, FullyMaskedRowsAreZero) {
  // 7 queries and 3 keys: the first 4 rows attend to no key.
  auto results = run(bottomRight, {random({1, 1, 7, 2}), random({1, 1, 3, 2}), random({1, 1, 3, 2})});
  for (int64_t i = 0; i < 8; ++i)
    EXPECT_EQ(0, results[0].values[i].real);
  for (int64_t i = 0; i < 7; ++i)
    EXPECT_EQ(i < 4, results[1].values[i].real == -INFINITY) << i;
}

TEST_F(Attention, BottomRightUsesTheLengths) {
  Tensor q = random({2, 1, 4, 3}), k = random({2, 1, 6, 3}), v = random({2, 1, 6, 3});
  auto formula = Formula<double>::of(q, k, v);
  int64_t queryLengths[] = {4, 2}, keyLengths[] = {5, 6};
  formula.queryLength = [&](int64_t b) { return queryLengths[b]; };
  formula.keyLength = [&](int64_t b) { return keyLengths[b]; };
  formula.mask = [&](int64_t b, int64_t, int64_t i, int64_t j) { return j <= i + keyLengths[b] - queryLengths[b]; };
  expectFormula(R"(
    func.func @lengths(%q: tensor<2x1x4x3xf32>, %k: tensor<2x1x6x3xf32>, %v: tensor<2x1x6x3xf32>, %ql: tensor<2xi32>,
        %kl: tensor<2xi64>) -> (tensor<2x1x4x3xf32>, tensor<2x1x4xf32>) {
      %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] q_len(%ql : tensor<2xi32>)
        kv_len(%kl : tensor<2xi64>) mask causal<bottom_right> lse
        : (tensor<2x1x4x3xf32>, tensor<2x1x6x3xf32>, tensor<2x1x6x3xf32>) -> (tensor<2x1x4x3xf32>, tensor<2x1x4xf32>)
      return %o, %l : tensor<2x1x4x3xf32>, tensor<2x1x4xf32>
    })",
                {q, k, v, integers({2}, {4, 2}, "i32"), integers({2}, {5, 6}, "i64")}, formula);
}

constexpr const char *byLength = R"(
  func.func @by_length(%q: tensor<1x2x3x4xf32>, %k: tensor<1x2x5x4xf32>, %v: tensor<1x2x5x4xf32>, %n: index)
      -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>) {
    %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] kv_len(%n : index) lse
      : (tensor<1x2x3x4xf32>, tensor<1x2x5x4xf32>, tensor<1x2x5x4xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>)
    return %o, %l : tensor<1x2x3x4xf32>, tensor<1x2x3xf32>
  })";

TEST_F(Attention, KeysBeyondTheLengthAreNeverRead) {
  Tensor q = random({1, 2, 3, 4}), k = random({1, 2, 5, 4}), v = random({1, 2, 5, 4});
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t i = 3 * 4; i < 5 * 4; ++i)
      k.values[h * 20 + i].real = v.values[h * 20 + i].real = i % 2 ? nan : INFINITY;
  auto formula = Formula<double>::of(q, k, v);
  formula.keyLength = [](int64_t) { return 3; };
  expectFormula(byLength, {q, k, v, index(3)}, formula);
}

TEST_F(Attention, LengthsAreClampedToTheTensor) {
  Tensor q = random({1, 2, 3, 4}), k = random({1, 2, 5, 4}), v = random({1, 2, 5, 4});
  expectFormula(byLength, {q, k, v, index(99)}, Formula<double>::of(q, k, v));
  auto none = run(byLength, {q, k, v, index(-1)});
  expectNear(none[0], std::vector<double>(24, 0.0));
  expectNear(none[1], std::vector<double>(6, -INFINITY));
}

TEST_F(Attention, MaskedKeysHaveNoEffectEvenIfNaN) {
  Tensor q = random({3, 2}), k = random({4, 2}), v = random({4, 2});
  Tensor poisonedK = k, poisonedV = v;
  poisonedK.values[3].real = poisonedV.values[2].real = nan;
  constexpr const char *source = R"(
    func.func @masked(%q: tensor<3x2xf32>, %k: tensor<4x2xf32>, %v: tensor<4x2xf32>) -> tensor<3x2xf32> {
      %o = attn.attention %q[s,d], %k[s,d], %v[s,d] mask(%b, %h, %i, %j) {
          %c1 = arith.constant 1 : index
          %m = arith.cmpi ne, %j, %c1 : index
          attn.yield %m : i1
        } : (tensor<3x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<3x2xf32>
      return %o : tensor<3x2xf32>
    })";
  EXPECT_EQ(realsOf(run(source, {q, k, v})[0]), realsOf(run(source, {q, poisonedK, poisonedV})[0]));
}

TEST_F(Attention, NaNStaysInItsRow) {
  Tensor q = random({1, 1, 3, 4}), k = random({1, 1, 5, 4}), v = random({1, 1, 5, 4});
  q.values[4].real = nan;
  auto results = run(plain, {q, k, v});
  for (int64_t i = 0; i < 12; ++i)
    EXPECT_EQ(i / 4 == 1, std::isnan(results[0].values[i].real)) << i;
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_EQ(i == 1, std::isnan(results[1].values[i].real)) << i;
}

TEST_F(Attention, ScoreRegionUsesAbsolutePositionsAndCaptures) {
  // ALiBi with one slope per head, a scalar capture, and a table indexed by position; `at` offsets all four positions.
  Tensor q = random({1, 2, 3, 4}), k = random({1, 2, 5, 4}), v = random({1, 2, 5, 4});
  Tensor slope = reals({3}, {-0.5, 0.25, 2}), table = random({20});
  auto formula = Formula<double>::of(q, k, v);
  formula.score = [&](double s, int64_t b, int64_t h, int64_t i, int64_t j) {
    int64_t absolute[] = {b + 2, h + 1, i + 7, j + 4};
    return s + slope.values[absolute[1]].real * double(absolute[3] - absolute[2]) +
           table.values[absolute[2] + absolute[3]].real * double(absolute[0]) + 0.125;
  };
  formula.mask = [&](int64_t, int64_t, int64_t i, int64_t j) { return j + 4 <= i + 7 && (i + 7) - 3 <= j + 4; };
  expectFormula(R"(
    func.func @score(%q: tensor<1x2x3x4xf32>, %k: tensor<1x2x5x4xf32>, %v: tensor<1x2x5x4xf32>, %slope: tensor<3xf32>,
        %table: tensor<?xf32>, %offset: f32, %b0: index, %h0: index, %q0: index, %k0: index)
        -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>) {
      %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
        captures(%slope, %table, %offset : tensor<3xf32>, tensor<?xf32>, f32) at(%b0, %h0, %q0, %k0)
        mask causal<top_left> mask window<3, *>
        score(%s, %b, %h, %i, %j, %sl, %tb, %off) {
          %m = tensor.extract %sl[%h] : tensor<3xf32>
          %d = arith.subi %j, %i : index
          %di = arith.index_cast %d : index to i64
          %df = arith.sitofp %di : i64 to f32
          %x = arith.mulf %m, %df : f32
          %sum = arith.addi %i, %j : index
          %t = tensor.extract %tb[%sum] : tensor<?xf32>
          %bi = arith.index_cast %b : index to i32
          %bf = arith.sitofp %bi : i32 to f32
          %y = arith.mulf %t, %bf : f32
          %r0 = arith.addf %s, %x : f32
          %r1 = arith.addf %r0, %y : f32
          %r2 = arith.addf %r1, %off : f32
          attn.yield %r2 : f32
        } lse
        : (tensor<1x2x3x4xf32>, tensor<1x2x5x4xf32>, tensor<1x2x5x4xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>)
      return %o, %l : tensor<1x2x3x4xf32>, tensor<1x2x3xf32>
    })",
                {q, k, v, slope, table, reals({}, {0.125}), index(2), index(1), index(7), index(4)}, formula);
}

TEST_F(Attention, LengthsAreAbsoluteAndAtMovesElementZero) {
  // Queries 10..13 with length 12, keys 20..25 with length 23: two queries and three keys are valid.
  Tensor q = random({1, 1, 4, 3}), k = random({1, 1, 6, 3}), v = random({1, 1, 6, 3});
  auto formula = Formula<double>::of(q, k, v);
  formula.queryLength = [](int64_t) { return 2; };
  formula.keyLength = [](int64_t) { return 3; };
  for (auto [mask, shift] : {std::pair("bottom_right", 23 - 12), std::pair("20", 20)}) {
    formula.mask = [shift = shift](int64_t, int64_t, int64_t i, int64_t j) { return j + 20 <= i + 10 + shift; };
    expectFormula(std::string(R"(
      func.func @at(%q: tensor<1x1x4x3xf32>, %k: tensor<1x1x6x3xf32>, %v: tensor<1x1x6x3xf32>, %b0: index, %q0: index,
          %k0: index, %m: index, %n: index) -> (tensor<1x1x4x3xf32>, tensor<1x1x4xf32>) {
        %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] q_len(%m : index) kv_len(%n : index)
          at(%b0, %b0, %q0, %k0) mask causal<)") +
                      mask + R"(> lse
          : (tensor<1x1x4x3xf32>, tensor<1x1x6x3xf32>, tensor<1x1x6x3xf32>) -> (tensor<1x1x4x3xf32>, tensor<1x1x4xf32>)
        return %o, %l : tensor<1x1x4x3xf32>, tensor<1x1x4xf32>
      })",
                  {q, k, v, index(0), index(10), index(20), index(12), index(23)}, formula);
  }
}

TEST_F(Attention, ScoreIsNotEvaluatedForMaskedKeys) {
  // The table has 3 elements; keys 3 and 4 are masked, so it is never read out of bounds.
  std::string message = errorOf(R"(
    func.func @guarded(%q: tensor<2x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>, %t: tensor<3xf32>) -> tensor<2x4xf32> {
      %o = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%t : tensor<3xf32>)
        mask(%b, %h, %i, %j, %tb) {
          %c3 = arith.constant 3 : index
          %m = arith.cmpi slt, %j, %c3 : index
          attn.yield %m : i1
        }
        score(%s, %b, %h, %i, %j, %tb) {
          %x = tensor.extract %tb[%j] : tensor<3xf32>
          %r = arith.addf %s, %x : f32
          attn.yield %r : f32
        } : (tensor<2x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>) -> tensor<2x4xf32>
      return %o : tensor<2x4xf32>
    })",
                                {random({2, 4}), random({5, 4}), random({5, 4}), random({3})});
  EXPECT_EQ("", message);
}

TEST_F(Attention, ScaleFromAttributeOrValue) {
  Tensor q = random({1, 1, 3, 4}), k = random({1, 1, 5, 4}), v = random({1, 1, 5, 4});
  auto formula = Formula<double>::of(q, k, v);
  formula.scale = 0.375;
  const char *types = ": (tensor<1x1x3x4xf32>, tensor<1x1x5x4xf32>, tensor<1x1x5x4xf32>) -> (tensor<1x1x3x4xf32>, "
                      "tensor<1x1x3xf32>) return %o, %l : tensor<1x1x3x4xf32>, tensor<1x1x3xf32> }";
  std::string head = "func.func @scale(%q: tensor<1x1x3x4xf32>, %k: tensor<1x1x5x4xf32>, %v: tensor<1x1x5x4xf32>, %x: "
                     "f32) -> (tensor<1x1x3x4xf32>, tensor<1x1x3xf32>) { %o, %l = attn.attention %q[b,h,s,d], "
                     "%k[b,h,s,d], %v[b,h,s,d] ";
  expectFormula(head + "scale(0.375) lse" + types, {q, k, v, reals({}, {9})}, formula);
  expectFormula(head + "scale(%x : f32) lse" + types, {q, k, v, reals({}, {0.375})}, formula);
}

TEST_F(Attention, LargeScoresDoNotOverflow) {
  Tensor q = random({1, 1, 3, 4}, "f32", 1e4), k = random({1, 1, 5, 4}), v = random({1, 1, 5, 4});
  expectFormula(plain, {q, k, v}, Formula<double>::of(q, k, v), 1e-11);
}

TEST_F(Attention, RoundedPrecisionRoundsProbabilitiesToTheInputType) {
  // Three probabilities of 1/3, in bf16 0.333984375, times values of 1 give 1.001953125.
  constexpr const char *source = R"(
    func.func @thirds(%q: tensor<1x1xbf16>, %k: tensor<3x1xbf16>, %v: tensor<3x1xbf16>) -> (tensor<1x1xf32>, tensor<1xf32>) {
      %o, %l = attn.attention %q[s,d], %k[s,d], %v[s,d] lse
        : (tensor<1x1xbf16>, tensor<3x1xbf16>, tensor<3x1xbf16>) -> (tensor<1x1xf32>, tensor<1xf32>)
      return %o, %l : tensor<1x1xf32>, tensor<1xf32>
    })";
  llvm::SmallVector<Tensor> arguments{reals({1, 1}, {0}, "bf16"), reals({3, 1}, {1, 2, 3}, "bf16"),
                                      reals({3, 1}, {1, 1, 1}, "bf16")};
  EXPECT_EQ(1.001953125, run(source, arguments, Precision::Rounded)[0].values[0].real);
  EXPECT_EQ(double(std::log(3.0f)), run(source, arguments, Precision::Rounded)[1].values[0].real);
  EXPECT_NEAR(1, run(source, arguments)[0].values[0].real, 1e-15);
}

} // namespace
