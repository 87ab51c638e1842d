// What rounding of scores changes, the tolerance that allows for it, and scores of tensor cores.
#include "Harness.h"
#include "saccade/Reference/Tolerance.h"

using namespace saccade::reference;

namespace {

class ScoreRounding : public Reference {
protected:
  /// The bounds of the results of `withThreshold`.
  std::vector<std::vector<double>> boundsOf(mlir::func::FuncOp function, std::vector<double> keys,
                                            std::vector<double> values) {
    std::vector<std::vector<double>> bounds;
    int64_t count = int64_t(keys.size());
    auto evaluation =
        Evaluation::begin(function, {reals({1, 1}, {1}), reals({count, 1}, keys), reals({count, 1}, values)});
    for (unsigned result : {0, 1, 2, 3}) {
      Box all = result == 0 ? Box::whole({1, 1}) : result == 3 ? Box::whole({1, 2}) : Box::whole({1});
      bounds.push_back(realsOf(**evaluation->scoreRounding(result, {all})));
    }
    return bounds;
  }
};

constexpr const char *allResults = R"(
  func.func @f(%q: tensor<1x1xf32>, %k: tensor<2x1xf32>, %v: tensor<2x1xf32>)
      -> (tensor<1x1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xi64>, tensor<1x2xf32>) {
    %o, %l, %m, %i, %t = attn.attention %q[s,d], %k[s,d], %v[s,d] scale(1.0)
      tally<2>(%s, %b, %h, %i, %j) {
        %bin = arith.constant 0 : index
        attn.yield %bin, %s : index, f32
      } lse max argmax
      : (tensor<1x1xf32>, tensor<2x1xf32>, tensor<2x1xf32>)
      -> (tensor<1x1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xi64>, tensor<1x2xf32>)
    return %o, %l, %m, %i, %t : tensor<1x1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xi64>, tensor<1x2xf32>
  })";

TEST_F(ScoreRounding, BoundsByHand) {
  // The scores are ln 3 and 0, the probabilities 3/4 and 1/4, and the output is 1. The score of the first key has a
  // product, a sum and four other roundings, each of a number in [1, 2).
  mlir::func::FuncOp function = parse(allResults);
  ASSERT_TRUE(function);
  double ln3 = std::log(3.0), bound = 6 * 0x1p-24 * std::sqrt((2 + 4) / 3.0);
  auto evaluation = Evaluation::begin(function, {reals({1, 1}, {1}), reals({2, 1}, {ln3, 0}), reals({2, 1}, {4, -8})});
  std::vector<std::vector<double>> expected = {
      {0.75 * 3 * bound}, {0.75 * bound}, {bound}, {}, {0.75 * (0.25 * ln3 + 1) * bound, 0}};
  for (auto [result, bounds] : llvm::enumerate(expected)) {
    bool isTally = result == 4, isMatrix = isTally || result == 0;
    Box all = isMatrix ? Box::whole({1, int64_t(bounds.size())}) : Box::whole({1});
    auto rounding = evaluation->scoreRounding(result, {all});
    ASSERT_TRUE(mlir::succeeded(rounding));
    ASSERT_EQ(!bounds.empty(), rounding->has_value()) << "result " << result;
    for (size_t i = 0; i < bounds.size(); ++i)
      EXPECT_NEAR(bounds[i], (*rounding)->values[i].real, 1e-6 * bounds[i]) << "result " << result;
  }
}

TEST_F(ScoreRounding, RootsOfKeysAdd) {
  // Both scores are 1, so the probabilities are 1/2 and the output is −2: e is that of a score in `BoundsByHand`.
  double bound = 6 * 0x1p-24 * std::sqrt((2 + 4) / 3.0);
  auto evaluation =
      Evaluation::begin(parse(allResults), {reals({1, 1}, {1}), reals({2, 1}, {1, 1}), reals({2, 1}, {4, -8})});
  for (auto [result, expected] : {std::pair(0, std::sqrt(2) * 0.5 * 6 * bound), {1, std::sqrt(2) * 0.5 * bound}}) {
    auto rounding = evaluation->scoreRounding(result, {result ? Box::whole({1}) : Box::whole({1, 1})});
    ASSERT_TRUE(mlir::succeeded(rounding) && rounding->has_value());
    EXPECT_NEAR(expected, (*rounding)->values[0].real, 1e-6 * expected) << "result " << result;
  }
}

TEST_F(ScoreRounding, OfAKeyWithAllWeightChangesNothing) {
  auto evaluation =
      Evaluation::begin(parse(allResults), {reals({1, 1}, {1000}), reals({2, 1}, {1, -1}), reals({2, 1}, {4, -8})});
  auto rounding = evaluation->scoreRounding(0, {Box::whole({1, 1})});
  ASSERT_TRUE(mlir::succeeded(rounding) && rounding->has_value());
  EXPECT_EQ(0, (*rounding)->values[0].real);
}

/// Attention whose scores below 1 become `below`. Results: output, log-sum-exp, row maximum, and a tally of ones.
std::string withThreshold(const std::string &below) {
  return R"(
    func.func @f(%q: tensor<1x1xf32>, %k: tensor<?x1xf32>, %v: tensor<?x1xf32>)
        -> (tensor<1x1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1x2xf32>) {
      %o, %l, %m, %t = attn.attention %q[s,d], %k[s,d], %v[s,d] scale(1.0)
        score(%s, %b, %h, %i, %j) {
          %threshold = arith.constant 1.0 : f32
          %below = arith.constant )" +
         below + R"( : f32
          %is = arith.cmpf oge, %s, %threshold : f32
          %r = arith.select %is, %s, %below : f32
          attn.yield %r : f32
        }
        tally<2>(%s, %b, %h, %i, %j) {
          %one = arith.constant 1.0 : f32
          attn.yield %j, %one : index, f32
        } lse max
        : (tensor<1x1xf32>, tensor<?x1xf32>, tensor<?x1xf32>)
        -> (tensor<1x1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1x2xf32>)
      return %o, %l, %m, %t : tensor<1x1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1x2xf32>
    })";
}

TEST_F(ScoreRounding, OfAScoreAtAThresholdRemovesOrAddsItsKey) {
  // The scores are 1, which is at the threshold or just below it, and 1 + ln 3. With both keys the probabilities are
  // 1/4 and 3/4, and the output is −5. Without the first key it is −8, and the log-sum-exp is log(3/4) less.
  for (const char *below : {"0xFF800000", "-1.0e+9"})
    for (double score : {1.0, 1 - 0x1p-24}) {
      mlir::func::FuncOp function = parse(withThreshold(below));
      ASSERT_TRUE(function);
      auto bounds = boundsOf(function, {score, 1 + std::log(3.0)}, {4, -8});
      EXPECT_NEAR(3, bounds[0][0], 1e-5) << below << ' ' << score;
      EXPECT_NEAR(std::log(4 / 3.0), bounds[1][0], 1e-5) << below << ' ' << score;
      EXPECT_NEAR(0, bounds[2][0], 2e-6) << below << ' ' << score;
      EXPECT_NEAR(1 / 4.0, bounds[3][0], 1e-5) << below << ' ' << score;
      EXPECT_NEAR(1 / 4.0, bounds[3][1], 1e-5) << below << ' ' << score;
    }
}

TEST_F(ScoreRounding, OfAScoreAtAThresholdChangesTheMaximum) {
  mlir::func::FuncOp function = parse(withThreshold("-2.0"));
  ASSERT_TRUE(function);
  // Both scores are at the threshold: one of them at least has to be −2 to change the maximum.
  EXPECT_NEAR(3, boundsOf(function, {1, 0}, {4, -8})[2][0], 1e-5);
  EXPECT_NEAR(3, boundsOf(function, {1 - 0x1p-24, 0}, {4, -8})[2][0], 1e-5);
  EXPECT_LT(boundsOf(function, {1, 1.5}, {4, -8})[2][0], 2e-6);
}

TEST_F(ScoreRounding, OfTheOnlyScoreAtAThresholdLeavesNoKey) {
  mlir::func::FuncOp function = parse(withThreshold("0xFF800000"));
  ASSERT_TRUE(function);
  for (double score : {1.0, 1 - 0x1p-24}) {
    auto bounds = boundsOf(function, {score, 0}, {4, -8});
    EXPECT_GE(bounds[0][0], 4) << score;
    EXPECT_EQ(INFINITY, bounds[1][0]) << score;
    EXPECT_EQ(INFINITY, bounds[2][0]) << score;
  }
  // A log-sum-exp of −inf then agrees with a finite one, but not with NaN.
  Tensor empty = reals({1}, {-INFINITY}), one = reals({1}, {1}), nan = reals({1}, {NAN}),
         bound = reals({1}, {INFINITY});
  EXPECT_TRUE(compare(empty, empty, one, {.scoreRounding = &bound}).agrees());
  EXPECT_TRUE(compare(one, one, empty, {.scoreRounding = &bound}).agrees());
  EXPECT_FALSE(compare(one, one, nan, {.scoreRounding = &bound}).agrees());
  EXPECT_FALSE(compare(one, one, empty, {.scoreRounding = &one}).agrees());
}

TEST_F(ScoreRounding, AtAThresholdIsAllowedByAllBounds) {
  // The score just below the threshold is rounded to it: a key gets a weight of 1/4.
  mlir::func::FuncOp function = parse(withThreshold("0xFF800000"));
  ASSERT_TRUE(function);
  auto evaluation = Evaluation::begin(
      function, {reals({1, 1}, {1}), reals({2, 1}, {1 - 0x1p-24, 1 + std::log(3.0)}), reals({2, 1}, {4, -8})});
  llvm::SmallVector<Box> all{Box::whole({1, 1})};
  Tensor exact = *evaluation->evaluate(0, all);
  EXPECT_EQ(-8, exact.values[0].real);
  auto magnitude = evaluation->magnitude(0, all);
  auto rounding = evaluation->scoreRounding(0, all);
  for (auto [found, agrees] : {std::pair(-5.0, true), {-4.9, false}, {-8, true}}) {
    Comparison comparison =
        compare(exact, exact, reals({1}, {found}), {.magnitude = &**magnitude, .scoreRounding = &**rounding});
    EXPECT_EQ(agrees, comparison.agrees()) << comparison.describe();
  }
}

TEST_F(ScoreRounding, ToInt8IsAllowedWithLargeLogits) {
  // Scores of 100 · 100 and 99.9 · 100 with errors of about 20: the second key may have all the weight. No rounding
  // gives an output beyond the values.
  auto function = parse(R"(
    func.func @f(%q: tensor<1x2xf32>, %k: tensor<3x2xf32>, %v: tensor<3x1xf32>) -> tensor<1x1xf32> {
      %o = attn.attention %q[s,d], %k[s,d], %v[s,d] scale(1.0) qk_type(i8)
        : (tensor<1x2xf32>, tensor<3x2xf32>, tensor<3x1xf32>) -> tensor<1x1xf32>
      return %o : tensor<1x1xf32>
    })");
  auto evaluation =
      Evaluation::begin(function, {reals({1, 2}, {100, 33.3}), reals({3, 2}, {100, 0.3, 99.9, 0.1, -100, 0.7}),
                                   reals({3, 1}, {1, 3, -1})});
  llvm::SmallVector<Box> all{Box::whole({1, 1})};
  Tensor exact = *evaluation->evaluate(0, all);
  EXPECT_NEAR(1, exact.values[0].real, 1e-3);
  auto magnitude = evaluation->magnitude(0, all);
  auto rounding = evaluation->scoreRounding(0, all);
  EXPECT_NEAR(2, (*magnitude)->quantized.values[0].real, 1e-3);
  for (auto [found, agrees] : {std::pair(3.0, true), {2.0, true}, {100.0, false}, {-100.0, false}, {1e30, false}}) {
    Comparison comparison =
        compare(exact, exact, reals({1}, {found}), {.magnitude = &**magnitude, .scoreRounding = &**rounding});
    EXPECT_EQ(agrees, comparison.agrees()) << comparison.describe();
  }
}

TEST_F(ScoreRounding, DeviatesInTheSumOfSignedErrors) {
  // Two of eight rows have large errors with one sign, which rounding of their scores explains.
  std::vector<double> values(8, 1), bounds(8, 0);
  bounds[0] = bounds[1] = 6;
  Tensor exact = reals({8}, values), rounding = reals({8}, bounds), actual = reals({8}, values, "f16");
  actual.values[0].real += 1.5;
  actual.values[1].real += 1.5;
  Magnitude magnitude;
  magnitude.weighted = magnitude.spread = magnitude.conditioned = reals({8}, values, "f64");
  magnitude.quantized = reals({8}, std::vector<double>(8, 2), "f64");
  magnitude.inputType = type("f16");
  magnitude.isOfArguments = true;
  Comparison comparison =
      compare(exact, exact, actual, {.magnitude = &magnitude, .scoreRounding = &rounding, .fused = &exact});
  EXPECT_TRUE(comparison.agrees()) << comparison.describe();
}

/// Rows of a box are those of the whole result.
TEST_F(ScoreRounding, BoxesAreThoseOfTheWhole) {
  mlir::func::FuncOp function = parse(R"(
    func.func @f(%q: tensor<5x2x4xf32>, %k: tensor<9x2x4xf32>, %v: tensor<9x2x3xf32>) -> tensor<5x2x3xf32> {
      %o = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d]
        : (tensor<5x2x4xf32>, tensor<9x2x4xf32>, tensor<9x2x3xf32>) -> tensor<5x2x3xf32>
      return %o : tensor<5x2x3xf32>
    })");
  auto evaluation = Evaluation::begin(function, {random({5, 2, 4}), random({9, 2, 4}), random({9, 2, 3})});
  llvm::SmallVector<Box> boxes{{{1, 1, 0}, {1, 1, 3}}, {{2, 0, 1}, {3, 2, 2}}};
  auto whole = evaluation->scoreRounding(0, {Box::whole({5, 2, 3})}), some = evaluation->scoreRounding(0, boxes);
  ASSERT_TRUE(mlir::succeeded(whole) && mlir::succeeded(some));
  (*whole)->shape = {5, 2, 3};
  EXPECT_EQ(realsOf(gather(**whole, boxes)), realsOf(**some));
  for (double bound : realsOf(**whole))
    EXPECT_GT(bound, 0);
}

TEST_F(ScoreRounding, IsAllowedWherePlainEvaluationIsAccurateByChance) {
  // One of 1000 rows has scores whose errors matter.
  std::vector<double> values(1000, 1), bounds(1000);
  bounds[3] = 1e-3;
  Tensor exact = reals({1000}, values), rounding = reals({1000}, bounds);
  for (auto [error, isAllowed] : {std::pair(0.9e-3, true), {1.1e-3, false}}) {
    Tensor actual = exact;
    actual.values[3].real += error;
    EXPECT_EQ(Comparison::TooFar, compare(exact, exact, actual).verdict);
    Comparison comparison = compare(exact, exact, actual, {.scoreRounding = &rounding});
    EXPECT_EQ(isAllowed, comparison.agrees()) << comparison.describe();
    EXPECT_EQ(isAllowed, comparison.describe().find(
                             "plain evaluation and more than rounding of scores changes: error") == std::string::npos);
  }
  Tensor elsewhere = exact;
  elsewhere.values[4].real += 0.9e-3;
  EXPECT_EQ(Comparison::TooFar, compare(exact, exact, elsewhere, {.scoreRounding = &rounding}).verdict);
}

TEST_F(ScoreRounding, IsNotAddedToTheErrorOfPlainEvaluation) {
  // Twice the error of plain evaluation is as large as the effect of rounding scores.
  std::vector<double> values(1000, 1), bounds(1000);
  bounds[3] = 1e-3;
  Tensor exact = reals({1000}, values), plain = exact, rounding = reals({1000}, bounds);
  plain.values[3].real += 0.5e-3;
  for (auto [error, isAllowed] : {std::pair(0.9e-3, true), {1.1e-3, false}}) {
    Tensor actual = exact;
    actual.values[3].real += error;
    EXPECT_EQ(isAllowed, compare(exact, plain, actual, {.scoreRounding = &rounding}).agrees());
  }
}

TEST_F(ScoreRounding, IsNotAddedToTheErrorOfFusedEvaluation) {
  // A bf16 result is exact, and an error of fused evaluation makes as large an error as rounding scores.
  const std::string tensor = "tensor<1x1xbf16>";
  mlir::func::FuncOp function = parse("func.func @f(%q: " + tensor + ", %k: " + tensor + ", %v: " + tensor + ") -> " +
                                      tensor + " { %o = attn.attention %q[s,d], %k[s,d], %v[s,d] : (" + tensor + ", " +
                                      tensor + ", " + tensor + ") -> " + tensor + " return %o : " + tensor + " }");
  ASSERT_TRUE(function);
  Tensor one = reals({1, 1}, {1}, "bf16");
  auto evaluation = Evaluation::begin(function, {one, one, one});
  auto exact = evaluation->evaluate(0);
  auto magnitude = evaluation->magnitude(0, {Box::whole({1, 1})});
  ASSERT_TRUE(mlir::succeeded(exact) && mlir::succeeded(magnitude));
  // A unit is 2⁻⁷. With half a unit for the result and one for the probability, 0.0142 is allowed, which is below
  // bound 2.
  Tensor fused = *exact, plain = *exact, rounding = reals({1, 1}, {2.5e-3});
  fused.values[0].real += 1.25e-3, plain.values[0].real += 4;
  for (auto [error, isAllowed] : {std::pair(0.0135, true), {0.015, false}}) {
    Tensor actual = one;
    actual.values[0].real += error;
    Comparison comparison =
        compare(*exact, plain, actual, {.magnitude = &**magnitude, .scoreRounding = &rounding, .fused = &fused});
    EXPECT_EQ(isAllowed ? Comparison::Agrees : Comparison::OutOfBound, comparison.verdict) << comparison.describe();
  }
}

TEST_F(ScoreRounding, BoundsTheMeanOfManyRowsMoreNarrowly) {
  // The bound is six deviations. The mean of 1000 rows may be 1 + 6 / √1000 of one.
  Tensor exact = reals({1000}, std::vector<double>(1000, 1)), rounding = reals({1000}, std::vector<double>(1000, 6e-3));
  for (auto [error, verdict] : {std::pair(1.1e-3, Comparison::Agrees), {1.3e-3, Comparison::MeanTooFar}}) {
    Tensor actual = exact;
    for (auto [i, value] : llvm::enumerate(actual.values))
      value.real += i % 2 ? error : -error;
    Comparison comparison = compare(exact, exact, actual, {.scoreRounding = &rounding});
    EXPECT_EQ(verdict, comparison.verdict) << comparison.describe();
  }
}

TEST_F(ScoreRounding, TensorCoresTruncateTermsAndSums) {
  // 1 − 3/4 · 2⁻²⁴ is nearer to 1 − 2⁻²⁴. Aligned to 1, the second term is truncated to 0. In another segment of 8
  // elements it is truncated as well. 1 + 3 · 2⁻²⁴ is nearer to 1 + 2⁻²², and truncated to 1 + 2⁻²³.
  double factor = 0x1p-12, third = 0x1p-11;
  for (auto [name, place, term, rounded, truncated] : {std::tuple("f16", 1, -0.75 * factor, 1 - 0x1p-24, 1.0),
                                                       {"f16", 9, -0.75 * factor, 1 - 0x1p-24, 1.0},
                                                       {"f16", 1, 1.5 * third, 1 + 0x1p-22, 1 + 0x1p-23},
                                                       {"f32", 1, -0.75 * factor, 1 - 0x1p-24, 1 - 0x1p-24}}) {
    std::vector<double> query(10), key(10);
    query[0] = key[0] = 1;
    query[place] = term, key[place] = 0x1p-12;
    std::string q = std::string("tensor<1x10x") + name + ">";
    mlir::func::FuncOp function = parse("func.func @f(%q: " + q + ", %k: " + q + ") -> tensor<1xf32> { %o, %m = " +
                                        "attn.attention %q[s,d], %k[s,d], %k[s,d] scale(1.0) max : (" + q + ", " + q +
                                        ", " + q + ") -> (" + q + ", tensor<1xf32>) return %m : tensor<1xf32> }");
    ASSERT_TRUE(function);
    llvm::SmallVector<Tensor> arguments = {reals({1, 10}, query, name), reals({1, 10}, key, name)};
    EXPECT_EQ(realsOf(run(function, arguments, Precision::Rounded)[0]), std::vector<double>{rounded}) << place;
    EXPECT_EQ(realsOf(run(function, arguments, Precision::GPU)[0]), std::vector<double>{truncated}) << place;
  }
}

TEST_F(ScoreRounding, FunctionsOnGPUsHaveTheErrorOfTheirInstructions) {
  // exp, tanh and log of 1000 numbers: some errors are above 0.9 of the bound 2⁻²², none is above it, and their mean is
  // 0.
  mlir::func::FuncOp function = parse(R"(
    func.func @f(%x: tensor<1000x1xf32>, %one: tensor<1x1xf32>)
        -> (tensor<1000x1xf32>, tensor<1000x1xf32>, tensor<1000x1xf32>) {
      %o, %t0, %t1, %t2 = attn.attention %x[s,d], %one[s,d], %one[s,d] scale(1.0)
        tally<1>(%s, %b, %h, %i, %j) {
          %bin = arith.constant 0 : index
          %e = math.exp %s : f32
          attn.yield %bin, %e : index, f32
        } tally<1>(%s, %b, %h, %i, %j) {
          %bin = arith.constant 0 : index
          %e = math.tanh %s : f32
          attn.yield %bin, %e : index, f32
        } tally<1>(%s, %b, %h, %i, %j) {
          %bin = arith.constant 0 : index
          %a = math.absf %s : f32
          %e = math.log %a : f32
          attn.yield %bin, %e : index, f32
        }
        : (tensor<1000x1xf32>, tensor<1x1xf32>, tensor<1x1xf32>)
        -> (tensor<1000x1xf32>, tensor<1000x1xf32>, tensor<1000x1xf32>, tensor<1000x1xf32>)
      return %t0, %t1, %t2 : tensor<1000x1xf32>, tensor<1000x1xf32>, tensor<1000x1xf32>
    })");
  ASSERT_TRUE(function);
  llvm::SmallVector<Tensor> arguments = {random({1000, 1}), reals({1, 1}, {1})};
  auto exact = run(function, arguments), rounded = run(function, arguments, Precision::Rounded),
       found = run(function, arguments, Precision::GPU);
  for (unsigned result = 0; result < 3; ++result) {
    double largest = 0, sum = 0;
    for (int64_t i = 0; i < 1000; ++i) {
      double value = exact[result].values[i].real, size = result == 0 ? value : result == 1 ? 1 : std::log(2);
      // Beside the error there is one rounding.
      double error = (found[result].values[i].real - value) / size * 0x1p22, unit = std::abs(value) / size * 0.25;
      EXPECT_LE(std::abs(error), 1 + unit) << "result " << result;
      largest = std::max(largest, std::abs(error));
      sum += error;
    }
    EXPECT_GT(largest, 0.9) << "result " << result;
    EXPECT_LT(std::abs(sum), 4 * std::sqrt(1000 / 3.0)) << "result " << result;
    EXPECT_NE(realsOf(rounded[result]), realsOf(found[result]));
  }
}

} // namespace
