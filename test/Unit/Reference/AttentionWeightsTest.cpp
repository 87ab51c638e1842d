// Sinks, weight regions, tallies, row maximum and argmax: hand-computed cases, whole and tiled.
#include "Harness.h"

using namespace saccade::reference;

namespace {

using AttentionWeights = Reference;

const double ln2 = std::log(2.0), ln3 = std::log(3.0);

TEST_F(AttentionWeights, SinkByHand) {
  // Head 0: scores ln 3 and 0 and a sink of ln 4 give weights 3/8 and 1/8. Head 1 has no sink: 3/4 and 1/4. Query 1 is
  // beyond the length, so it has no sink either. Query 0 of the second call attends to no key.
  const char *source = R"(
    func.func @sink(%q: tensor<2x2x2xf64>, %k: tensor<?x2xf64>, %v: tensor<?x1xf64>, %t: tensor<2xf64>)
        -> (tensor<2x2x1xf64>, tensor<2x2xf64>) {
      %n = arith.constant 1 : index
      %o, %l = attn.attention %q[h,s,d], %k[s,d], %v[s,d] scale(1.0) q_len(%n : index) sink(%t : tensor<2xf64>) lse
        : (tensor<2x2x2xf64>, tensor<?x2xf64>, tensor<?x1xf64>) -> (tensor<2x2x1xf64>, tensor<2x2xf64>)
      return %o, %l : tensor<2x2x1xf64>, tensor<2x2xf64>
    })";
  Tensor q = reals({2, 2, 2}, {ln3, 0, ln3, 0, ln3, 0, ln3, 0}, "f64");
  Tensor sink = reals({2}, {2 * ln2, -INFINITY}, "f64");
  auto results = run(source, {q, reals({2, 2}, {1, 0, 0, 1}, "f64"), reals({2, 1}, {8, 16}, "f64"), sink});
  expectNear(results[0], {5, 0, 10, 0});
  expectNear(results[1], {3 * ln2, -INFINITY, 2 * ln2, -INFINITY});
  results = run(source, {q, reals({0, 2}, {}, "f64"), reals({0, 1}, {}, "f64"), sink});
  expectNear(results[0], {0, 0, 0, 0});
  expectNear(results[1], {2 * ln2, -INFINITY, -INFINITY, -INFINITY});
}

constexpr const char *all = R"(
  func.func @whole(%q: tensor<2x1xf64>, %k: tensor<3x1xf64>, %v: tensor<3x1xf64>)
      -> (tensor<2x1xf64>, tensor<2xf64>, tensor<2xf64>, tensor<2xi64>, tensor<2x1xf64>, tensor<2x2xf64>) {
    %o, %l, %m, %a, %t, %u = attn.attention %q[s,d], %k[s,d], %v[s,d] scale(1.0) lse max argmax
      mask(%b, %h, %i, %j) {
        %two = arith.constant 2 : index
        %sum = arith.addi %i, %j : index
        %r = arith.cmpi sle, %sum, %two : index
        attn.yield %r : i1
      }
      weight(%p: f64, %b, %h, %i, %j) {
        %one = arith.constant 1.0 : f64
        %x = arith.mulf %p, %p : f64
        %y = arith.addf %x, %one : f64
        attn.yield %y : f64
      }
      tally<1>(%s: f64, %b, %h, %i, %j) {
        %zero = arith.constant 0 : index
        attn.yield %zero, %s : index, f64
      }
      tally<2>(%s: f64, %b, %h, %i, %j) {
        %one = arith.constant 1 : index
        %f = arith.constant 10.0 : f64
        %bin = arith.subi %j, %one : index
        attn.yield %bin, %f : index, f64
      } : (tensor<2x1xf64>, tensor<3x1xf64>, tensor<3x1xf64>)
      -> (tensor<2x1xf64>, tensor<2xf64>, tensor<2xf64>, tensor<2xi64>, tensor<2x1xf64>, tensor<2x2xf64>)
    return %o, %l, %m, %a, %t, %u
      : tensor<2x1xf64>, tensor<2xf64>, tensor<2xf64>, tensor<2xi64>, tensor<2x1xf64>, tensor<2x2xf64>
  })";

TEST_F(AttentionWeights, RegionsByHand) {
  // Query 0: scores ln 2, ln 3, ln 3, weights 1/4, 3/8, 3/8. Query 1, for which key 2 is masked: scores ln 2 and ln 3,
  // weights 2/5 and 3/5. The bin is key − 1, so key 0 has none.
  auto results =
      run(all, {reals({2, 1}, {1, 1}, "f64"), reals({3, 1}, {ln2, ln3, ln3}, "f64"), reals({3, 1}, {1, 2, 3}, "f64")});
  double square = 9.0 / 64;
  expectNear(results[0], {1 + 1.0 / 16 + 5 * (1 + square), 1 + 4.0 / 25 + 2 * (1 + 9.0 / 25)});
  expectNear(results[1], {3 * ln2, std::log(5.0)});
  expectNear(results[2], {ln3, ln3});
  EXPECT_EQ(1, results[3].values[0].integer);
  EXPECT_EQ(1, results[3].values[1].integer);
  expectNear(results[4], {ln2 / 4 + ln3 * 3 / 4, ln2 * 2 / 5 + ln3 * 3 / 5});
  expectNear(results[5], {3.75, 3.75, 6, 0});
}

TEST_F(AttentionWeights, RowMaximumIgnoresNaN) {
  auto results =
      run(all, {reals({2, 1}, {1, 1}, "f64"), reals({3, 1}, {NAN, -2, -1}, "f64"), reals({3, 1}, {1, 2, 3}, "f64")});
  expectNear(results[2], {-1, -2});
  EXPECT_EQ(2, results[3].values[0].integer);
  EXPECT_EQ(1, results[3].values[1].integer);
  EXPECT_TRUE(std::isnan(results[0].values[0].real));
  EXPECT_TRUE(std::isnan(results[4].values[0].real));
}

TEST_F(AttentionWeights, TilesByHand) {
  // The scores ln 2, ln 3, ln 3 of RegionsByHand in two tiles, the second at position 10; then the weight region.
  auto results =
      run(R"(
    func.func @tiles(%q: tensor<1x1xf64>, %k: tensor<3x1xf64>, %v: tensor<3x1xf64>)
        -> (tensor<1x1xf64>, tensor<1x2xf64>, tensor<1xf64>, tensor<1xi64>) {
      %c0 = arith.constant 0 : index
      %c10 = arith.constant 10 : index
      %zero = arith.constant 0.0 : f64
      %ninf = arith.constant 0xFFF0000000000000 : f64
      %none = arith.constant -1 : i64
      %acc = tensor.splat %zero : tensor<1x1xf64>
      %max = tensor.splat %ninf : tensor<1xf64>
      %sum = tensor.splat %zero : tensor<1xf64>
      %bins = tensor.splat %zero : tensor<1x2xf64>
      %where = tensor.splat %none : tensor<1xi64>
      %k0 = tensor.extract_slice %k[0, 0] [1, 1] [1, 1] : tensor<3x1xf64> to tensor<1x1xf64>
      %v0 = tensor.extract_slice %v[0, 0] [1, 1] [1, 1] : tensor<3x1xf64> to tensor<1x1xf64>
      %k1 = tensor.extract_slice %k[1, 0] [2, 1] [1, 1] : tensor<3x1xf64> to tensor<2x1xf64>
      %v1 = tensor.extract_slice %v[1, 0] [2, 1] [1, 1] : tensor<3x1xf64> to tensor<2x1xf64>
      %a:6 = attn.accumulate %q[s,d], %k0[s,d], %v0[s,d] into(%acc, %max, %sum, %bins, %max, %where
          : tensor<1x1xf64>, tensor<1xf64>, tensor<1xf64>, tensor<1x2xf64>, tensor<1xf64>, tensor<1xi64>)
        tally<2>(%s: f64, %b, %h, %i, %j) {
          %c9 = arith.constant 9 : index
          %far = arith.cmpi sgt, %j, %c9 : index
          %bin = arith.index_castui %far : i1 to index
          attn.yield %bin, %s : index, f64
        } : (tensor<1x1xf64>, tensor<1x1xf64>, tensor<1x1xf64>)
      %b:6 = attn.accumulate %q[s,d], %k1[s,d], %v1[s,d] at(%c0, %c0, %c0, %c10)
        into(%a#0, %a#1, %a#2, %a#3, %a#4, %a#5
          : tensor<1x1xf64>, tensor<1xf64>, tensor<1xf64>, tensor<1x2xf64>, tensor<1xf64>, tensor<1xi64>)
        tally<2>(%s: f64, %b, %h, %i, %j) {
          %c9 = arith.constant 9 : index
          %far = arith.cmpi sgt, %j, %c9 : index
          %bin = arith.index_castui %far : i1 to index
          attn.yield %bin, %s : index, f64
        } : (tensor<1x1xf64>, tensor<2x1xf64>, tensor<2x1xf64>)
      %c:3 = attn.accumulate %q[s,d], %k[s,d], %v[s,d]
        into(%acc, %b#1, %b#2 : tensor<1x1xf64>, tensor<1xf64>, tensor<1xf64>)
        weight(%p: f64, %b, %h, %i, %j) {
          %one = arith.constant 1.0 : f64
          %x = arith.mulf %p, %p : f64
          %y = arith.addf %x, %one : f64
          attn.yield %y : f64
        } {final} : (tensor<1x1xf64>, tensor<3x1xf64>, tensor<3x1xf64>)
      %r:4 = attn.finalize %c#0, %c#1, %c#2 : tensor<1x1xf64>, tensor<1xf64>, tensor<1xf64>
        with(%b#3, %b#4, %b#5 : tensor<1x2xf64>, tensor<1xf64>, tensor<1xi64>)
        into(%acc[s,d] : tensor<1x1xf64>, %bins : tensor<1x2xf64>, %max : tensor<1xf64>, %where : tensor<1xi64>)
      return %r#0, %r#1, %r#2, %r#3 : tensor<1x1xf64>, tensor<1x2xf64>, tensor<1xf64>, tensor<1xi64>
    })",
          {reals({1, 1}, {1}, "f64"), reals({3, 1}, {ln2, ln3, ln3}, "f64"), reals({3, 1}, {1, 2, 3}, "f64")});
  expectNear(results[0], {1 + 1.0 / 16 + 5 * (1 + 9.0 / 64)});
  expectNear(results[1], {ln2 / 4, ln3 * 3 / 4});
  expectNear(results[2], {ln3});
  EXPECT_EQ(10, results[3].values[0].integer);
}

} // namespace
