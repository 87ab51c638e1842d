// The tolerance rule and its second bound.
#include "saccade/Reference/Tolerance.h"
#include "Harness.h"

using namespace saccade::reference;

namespace {

using Tolerance = Reference;

TEST_F(Tolerance, TwiceTheErrorOfPlainEvaluationPasses) {
  Tensor exact = reals({3}, {1, 2, 3}), rounded = reals({3}, {1, 2, 3 + 1e-3});
  EXPECT_TRUE(compare(exact, rounded, reals({3}, {1 + 1.9e-3, 2, 3})).agrees());
  Comparison bad = compare(exact, rounded, reals({3}, {1, 2 - 2.1e-3, 3}));
  EXPECT_EQ(Comparison::TooFar, bad.verdict);
  EXPECT_EQ(1, bad.worst);
  EXPECT_NEAR(2.1e-3, bad.maxError, 1e-9);
  EXPECT_NEAR(1.05, bad.ratio, 1e-3);
  EXPECT_NEAR(2.1, bad.meanRatio, 1e-3);
}

TEST_F(Tolerance, LargerErrorOfTheTwoOrdersCounts) {
  Tensor exact = reals({2}, {1, 2}), near = reals({2}, {1 + 1e-3, 2}), far = reals({2}, {1, 2 - 2e-3});
  for (const std::vector<Tensor> &plain : {std::vector{near, far}, std::vector{far, near}}) {
    EXPECT_TRUE(compare(exact, plain, reals({2}, {1 + 3.9e-3, 2})).agrees());
    Comparison bad = compare(exact, plain, reals({2}, {1 + 4.2e-3, 2}));
    EXPECT_EQ(Comparison::TooFar, bad.verdict);
    EXPECT_NEAR(2.1, bad.meanRatio, 1e-3);
  }
}

TEST_F(Tolerance, MeanErrorFarAbovePlainEvaluationIsTooFar) {
  // Plain evaluation has one large error; the result has many of that size.
  Tensor exact = reals({1000}, std::vector<double>(1000, 1)), rounded = exact, actual = exact;
  for (int64_t i = 0; i < 1000; ++i) {
    exact.values[i].real = 1 + i * 1e-3;
    rounded.values[i].real = exact.values[i].real + 1e-3;
  }
  for (auto [factor, verdict] : {std::pair(2.4, Comparison::Agrees), std::pair(2.6, Comparison::MeanTooFar)}) {
    for (int64_t i = 0; i < 1000; ++i)
      actual.values[i].real = exact.values[i].real + (i % 2 ? 1 : -1) * factor * 1e-3;
    rounded.values[0].real = exact.values[0].real + 2e-3;
    Comparison comparison = compare(exact, rounded, actual);
    EXPECT_EQ(verdict, comparison.verdict) << comparison.describe();
    EXPECT_NEAR(factor, comparison.meanRatio, 0.01);
  }
}

/// One key has weight 1, so gradients of query and key are 0: differences of two sums, each with the error of its type.
TEST_F(Tolerance, TermsOfGradientsThatCancelAllowErrors) {
  mlir::func::FuncOp function = parse(R"(
    func.func @f(%q: tensor<1x2xbf16>, %k: tensor<1x2xbf16>, %v: tensor<1x2xbf16>, %do: tensor<1x2xbf16>,
        %lse: tensor<1xf32>, %delta: tensor<1xf32>) -> (tensor<1x2xbf16>, tensor<1x2xbf16>, tensor<1x2xbf16>) {
      %r:3 = attn.gradient %q[s,d], %k[s,d], %v[s,d] output_gradient(%do[s,d] : tensor<1x2xbf16>)
        lse(%lse : tensor<1xf32>) delta(%delta : tensor<1xf32>) scale(0.5)
        : (tensor<1x2xbf16>, tensor<1x2xbf16>, tensor<1x2xbf16>) -> (tensor<1x2xbf16>, tensor<1x2xbf16>, tensor<1x2xbf16>)
      return %r#0, %r#1, %r#2 : tensor<1x2xbf16>, tensor<1x2xbf16>, tensor<1x2xbf16>
    })");
  ASSERT_TRUE(function);
  // The score is 0.5 · 1, dP = delta = 2 · 3 − 4 · 1.
  auto tensor = [&](double a, double b) { return reals({1, 2}, {a, b}, "bf16"); };
  std::vector<Tensor> arguments = {tensor(1, 0),  tensor(1, -2),     tensor(2, 4),
                                   tensor(3, -1), reals({1}, {0.5}), reals({1}, {2})};
  auto evaluation = Evaluation::begin(function, arguments);
  ASSERT_TRUE(mlir::succeeded(evaluation));
  Box whole{{0, 0}, {1, 2}};
  auto ofQuery = evaluation->gradientTerms(0, whole), ofKey = evaluation->gradientTerms(1, whole),
       ofValue = evaluation->gradientTerms(2, whole);
  ASSERT_TRUE(mlir::succeeded(ofQuery) && *ofQuery && mlir::succeeded(ofKey) && *ofKey);
  EXPECT_TRUE(mlir::succeeded(ofValue) && !*ofValue);
  // scale · (|2 · 3| + |4 · 1| + |delta|) · |k| and |q|.
  expectNear(**ofQuery, {6, 12}, 1e-12);
  expectNear(**ofKey, {6, 0}, 1e-12);

  auto exact = evaluation->evaluate(0);
  ASSERT_TRUE(mlir::succeeded(exact));
  expectNear(*exact, {0, 0}, 1e-12);
  auto agrees = [&](double units, const Tensor *terms) {
    double error = units * 0x1p-23;
    return compare(*exact, run(function, arguments, Precision::Rounded)[0], tensor(error, -error),
                   {.gradientTerms = terms})
        .agrees();
  };
  EXPECT_FALSE(agrees(8, nullptr));
  EXPECT_TRUE(agrees(8, &**ofQuery));
  EXPECT_FALSE(agrees(10, &**ofQuery));
}

TEST_F(Tolerance, BiasRequiresManyIndependentRows) {
  // Results of bf16 that are 0.4 units too small, where plain evaluation errs to both sides.
  auto verdictOf = [&](int64_t rows, bool areEqual) {
    Tensor exact({type("f64")}, {rows * 4});
    Tensor plain({type("bf16")}, {rows * 4}), actual = plain;
    std::vector<int64_t> rowNumbers;
    for (int64_t i = 0; i < rows * 4; ++i) {
      int64_t round = i / 128;
      double unit = std::ldexp(1.0, -7), value = 1 + (areEqual ? i % 4 : i % 128) * unit;
      exact.values[i].real = value + (0.4 + (areEqual ? 0 : 0.05 * static_cast<double>(round))) * unit;
      actual.values[i].real = value;
      plain.values[i].real = exact.values[i].real + (i % 8 < 4 ? 0.4 : -0.4) * unit;
      rowNumbers.push_back(i / 4);
    }
    return compare(exact, plain, actual, {.rows = rowNumbers}).verdict;
  };
  EXPECT_EQ(Comparison::Biased, verdictOf(50, false));
  EXPECT_EQ(Comparison::Agrees, verdictOf(30, false));
  EXPECT_EQ(Comparison::Agrees, verdictOf(50, true));
}

TEST_F(Tolerance, AnOverflowDoesNotRaiseTheFloor) {
  Tensor exact = reals({2}, {1e30, 1}, "f64"), rounded = reals({2}, {INFINITY, 1}, "f16");
  EXPECT_TRUE(compare(exact, rounded, rounded).agrees());
  EXPECT_FALSE(compare(exact, rounded, reals({2}, {INFINITY, 1.01}, "f16")).agrees());
}

TEST_F(Tolerance, FloorFollowsTheResultType) {
  // Plain evaluation is exact here, so only the floor counts: 2 · 0.31 · 2^-7 in bf16, 2 · 0.31 · 2^-23 in f32.
  Tensor exact = reals({1}, {0.01}, "f64");
  EXPECT_TRUE(compare(exact, exact, reals({1}, {roundTo(type("bf16"), 0.01)}, "bf16")).agrees());
  EXPECT_FALSE(compare(exact, exact, reals({1}, {0.015}, "bf16")).agrees());
  EXPECT_TRUE(compare(exact, exact, reals({1}, {double(0.01f)})).agrees());
  EXPECT_FALSE(compare(exact, exact, reals({1}, {0.010001})).agrees());
}

TEST_F(Tolerance, F64IsComparedUpToTheOracleError) {
  Tensor exact = reals({2}, {1, 1e-3}, "f64");
  EXPECT_TRUE(compare(exact, exact, reals({2}, {1 + 5e-13, 1e-3}, "f64")).agrees());
  EXPECT_FALSE(compare(exact, exact, reals({2}, {1 + 5e-12, 1e-3}, "f64")).agrees());
}

TEST_F(Tolerance, NaNAndInfMustMatch) {
  Tensor exact = reals({4}, {NAN, INFINITY, -INFINITY, 1});
  EXPECT_TRUE(compare(exact, exact, exact).agrees());
  for (auto [i, wrong] :
       std::initializer_list<std::pair<int, double>>{{0, 1.0}, {1, NAN}, {2, INFINITY}, {3, NAN}, {3, -INFINITY}}) {
    Tensor actual = exact;
    actual.values[i].real = wrong;
    Comparison comparison = compare(exact, exact, actual);
    EXPECT_EQ(Comparison::NotFinite, comparison.verdict);
    EXPECT_EQ(i, comparison.worst);
  }
}

TEST_F(Tolerance, OverflowOfTheResultTypeAgrees) {
  Tensor exact = reals({2}, {70000, 1}, "f64"), rounded = reals({2}, {INFINITY, 1}, "f16");
  EXPECT_TRUE(compare(exact, rounded, reals({2}, {INFINITY, 1}, "f16")).agrees());
  EXPECT_FALSE(compare(exact, rounded, reals({2}, {65504, 1}, "f16")).agrees());
}

TEST_F(Tolerance, IntegersMustBeEqual) {
  Tensor exact = integers({3}, {1, 2, 3});
  EXPECT_TRUE(compare(exact, exact, exact).agrees());
  EXPECT_EQ("equal", compare(exact, exact, exact).describe());
  Comparison comparison = compare(exact, exact, integers({3}, {1, 2, 4}));
  EXPECT_EQ(Comparison::TooFar, comparison.verdict);
  EXPECT_EQ(2, comparison.worst);
  std::string text = comparison.describe();
  EXPECT_NE(std::string::npos, text.find("error 1.000000e+00 of 0.000000e+00 allowed (ratio INF) at element 2: found "
                                         "4.000000e+00, expected 3.000000e+00"))
      << text;
}

TEST_F(Tolerance, ReportsTheFirstIntegerThatDiffers) {
  Tensor exact = integers({4}, {1, 2, 3, 4});
  Comparison comparison = compare(exact, exact, integers({4}, {1, 7, 3, 400}));
  EXPECT_EQ(1, comparison.worst);
  EXPECT_EQ(5, comparison.maxError);
  EXPECT_EQ(7, comparison.actual);
  EXPECT_EQ(2, comparison.exact);
}

TEST_F(Tolerance, EmptyResultsAgree) {
  Tensor none = reals({0}, {});
  EXPECT_TRUE(compare(none, none, none).agrees());
  EXPECT_EQ("equal", compare(none, none, none).describe());
}

TEST_F(Tolerance, DescribesTheWorstElement) {
  Tensor exact = reals({2}, {1, 2});
  std::string text = compare(exact, exact, reals({2}, {1, 2.5})).describe();
  EXPECT_NE(std::string::npos, text.find("at element 1: found 2.500000e+00, expected 2.000000e+00")) << text;
}

constexpr const char *attention = R"(
  func.func @f(%q: tensor<2x8x16xf32>, %k: tensor<2x40x16xf32>, %v: tensor<2x40x16xf32>) -> tensor<2x8x16xf32> {
    %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d]
      : (tensor<2x8x16xf32>, tensor<2x40x16xf32>, tensor<2x40x16xf32>) -> tensor<2x8x16xf32>
    return %o : tensor<2x8x16xf32>
  })";

TEST_F(Tolerance, MagnitudeIsTheSumOfWeightedAbsoluteValues) {
  Tensor q = random({2, 8, 16}), k = random({2, 40, 16}), v = random({2, 40, 16});
  auto function = parse(attention);
  auto evaluation = Evaluation::begin(function, {q, k, v});
  llvm::SmallVector<Box> boxes{{{0, 1, 0}, {1, 1, 16}}, {{1, 3, 4}, {1, 2, 5}}};
  auto magnitude = evaluation->magnitude(0, boxes);
  ASSERT_TRUE(mlir::succeeded(magnitude) && magnitude->has_value());
  EXPECT_EQ(40, (*magnitude)->keys);
  EXPECT_EQ(16, (*magnitude)->depth);
  // Σ p |v| is attention over |v|.
  for (Scalar &value : v.values)
    value.real = std::abs(value.real);
  auto ofAbsolutes = Evaluation::begin(function, {q, k, v})->evaluate(0, boxes);
  expectNear((*magnitude)->weighted, realsOf(*ofAbsolutes));
  for (auto [weighted, conditioned] : llvm::zip_equal((*magnitude)->weighted.values, (*magnitude)->conditioned.values))
    EXPECT_GT(conditioned.real, weighted.real);
}

TEST_F(Tolerance, MagnitudeByHand) {
  // Dot products 2 and −2; the score region gives weights 3/4 and 1/4. |s| + Σ |q k| + 1 is ln 3 + 3 and 3.
  auto function = parse(R"(
    func.func @f(%q: tensor<1x1xf64>, %k: tensor<2x1xf64>, %v: tensor<2x1xf64>, %s: tensor<2xf64>) -> tensor<1x1xf64> {
      %o = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%s : tensor<2xf64>) scale(1.0)
        score(%x : f64, %b, %h, %i, %j, %t) {
          %y = tensor.extract %t[%j] : tensor<2xf64>
          attn.yield %y : f64
        } : (tensor<1x1xf64>, tensor<2x1xf64>, tensor<2x1xf64>) -> tensor<1x1xf64>
      return %o : tensor<1x1xf64>
    })");
  double ln3 = std::log(3.0);
  auto evaluation = Evaluation::begin(function, {reals({1, 1}, {2}, "f64"), reals({2, 1}, {1, -1}, "f64"),
                                                 reals({2, 1}, {4, -8}, "f64"), reals({2}, {ln3, 0}, "f64")});
  auto magnitude = evaluation->magnitude(0, {Box::whole({1, 1})});
  ASSERT_TRUE(mlir::succeeded(magnitude));
  expectNear((*magnitude)->weighted, {5});
  expectNear((*magnitude)->conditioned, {3 * (ln3 + 3) + 2 * 3 + 5 * (0.75 * (ln3 + 3) + 0.25 * 3)});
}

TEST_F(Tolerance, PlainEvaluationRoundsQueriesAndKeysOfAQuantizedAttention) {
  // The mean (10, 0.25) of the keys is not rounded. The largest elements of the query and of the keys without it are
  // 127, so they are rounded to integers, and the largest score is 127 · 10 + 1.5 · 0.25 + 127 · 127 + 2 · 1.
  auto function = parse(R"(
    func.func @f(%q: tensor<1x2xf32>, %k: tensor<2x2xf32>) -> (tensor<1x2xf32>, tensor<1xf32>, tensor<1xi64>) {
      %o, %m, %i = attn.attention %q[s,d], %k[s,d], %k[s,d] scale(1.0) qk_type(i8) max argmax
        : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<1x2xf32>, tensor<1xf32>, tensor<1xi64>)
      return %o, %m, %i : tensor<1x2xf32>, tensor<1xf32>, tensor<1xi64>
    })");
  std::vector<Tensor> arguments = {reals({1, 2}, {127, 1.5}), reals({2, 2}, {137, 1.625, -117, -1.125})};
  for (auto [precision, largest] : {std::pair(Precision::Rounded, 1270 + 0.375 + 127 * 127 + 2),
                                    {Precision::Fused, 1270 + 0.375 + 127 * 127 + 2},
                                    {Precision::Exact, 127 * 137 + 1.5 * 1.625}})
    expectNear(*Evaluation::begin(function, arguments, precision)->evaluate(1), {largest});
}

TEST_F(Tolerance, RoundingOfAQuantizedAttentionIsBounded) {
  // Scores 2 and −2 with an error of at most e = |q| step(k) / 2 + |k| step(q) / 2 + step(q) step(k) / 4. Probabilities
  // may thus change by the factor exp(2 e).
  std::vector<Tensor> arguments = {reals({1, 1}, {2}), reals({2, 1}, {1, -1}), reals({2, 1}, {4, -8})};
  double e = 2 / 254.0 + 2 / 254.0 + 2 / (254.0 * 254);
  const char *doubled = R"(score(%s, %b, %h, %i, %j) {
    %t = arith.addf %s, %s : f32
    attn.yield %t : f32
  })";
  // The first probability, 0.982, is below the threshold, and may be above it after rounding.
  const char *thresholded = R"(weight(%p, %b, %h, %i, %j) {
    %threshold = arith.constant 0.984375 : f32
    %zero = arith.constant 0.0 : f32
    %d = arith.subf %p, %threshold : f32
    %r = arith.maximumf %d, %zero : f32
    attn.yield %r : f32
  })";
  auto first = [](double s) { return 1 / (1 + std::exp(-2 * s)); };
  auto bound = [&](double s, double e) {
    double p = first(s), fall = -std::expm1(-2 * e), rise = std::expm1(2 * e);
    return 4 * std::max(p * fall, std::min(1 - p, p * rise)) + 8 * (1 - p) * rise;
  };
  double risen = std::min(1.0, first(2) * std::exp(2 * e));
  ASSERT_LT(first(2), 0.984375);
  for (auto [region, expected] :
       {std::pair("", bound(2, e)), {doubled, bound(4, 2 * e)}, {thresholded, 4 * (risen - 0.984375)}}) {
    auto function = parse((R"(
      func.func @f(%q: tensor<1x1xf32>, %k: tensor<2x1xf32>, %v: tensor<2x1xf32>) -> tensor<1x1xf32> {
        %o = attn.attention %q[s,d], %k[s,d], %v[s,d] scale(1.0) qk_type(i8) )" +
                           llvm::Twine(region) +
                           R"( : (tensor<1x1xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<1x1xf32>
        return %o : tensor<1x1xf32>
      })")
                              .str());
    auto magnitude = Evaluation::begin(function, arguments)->magnitude(0, {Box::whole({1, 1})});
    ASSERT_TRUE(mlir::succeeded(magnitude));
    expectNear((*magnitude)->quantized, {expected});
  }
}

TEST_F(Tolerance, OnlyMovedElementsAreThoseOfArguments) {
  for (auto [query, isOfArguments] :
       {std::pair("tensor.extract_slice %x[1, 0] [2, 4] [1, 1] : tensor<3x4xf32> to tensor<2x4xf32>", true),
        {"linalg.exp ins(%e : tensor<2x4xf32>) outs(%e : tensor<2x4xf32>) -> tensor<2x4xf32>", false},
        {"arith.constant dense<1.0> : tensor<2x4xf32>", false}}) {
    auto function = parse((R"(
      func.func @f(%x: tensor<3x4xf32>, %e: tensor<2x4xf32>) -> tensor<2x4xf32> {
        %q = )" + llvm::Twine(query) +
                           R"(
        %o = attn.attention %q[s,d], %x[s,d], %x[s,d]
          : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
        return %o : tensor<2x4xf32>
      })")
                              .str());
    auto evaluation = Evaluation::begin(function, {random({3, 4}), random({2, 4})});
    auto magnitude = evaluation->magnitude(0, {Box::whole({2, 4})});
    ASSERT_TRUE(mlir::succeeded(magnitude) && magnitude->has_value());
    EXPECT_EQ(isOfArguments, (*magnitude)->isOfArguments) << query;
  }
}

TEST_F(Tolerance, SecondBoundIncludesTheSmallestSubnormal) {
  Magnitude magnitude;
  magnitude.weighted = magnitude.conditioned = reals({1}, {1e-9}, "f64");
  magnitude.inputType = type("f16");
  Tensor exact = reals({1}, {1e-9}, "f64"), zero = reals({1}, {0}, "f16"), more = reals({1}, {2e-7}, "f16");
  EXPECT_TRUE(compare(exact, {zero}, zero, {.magnitude = &magnitude}).agrees());
  EXPECT_EQ(Comparison::OutOfBound, compare(exact, {zero}, more, {.magnitude = &magnitude}).verdict);
}

TEST_F(Tolerance, SecondBoundIncludesQuantization) {
  Magnitude magnitude;
  magnitude.weighted = magnitude.conditioned = reals({1}, {1}, "f64");
  magnitude.inputType = type("f32");
  Tensor exact = reals({1}, {1}, "f64"), plain = reals({1}, {1.5}), near = reals({1}, {1.24}), far = reals({1}, {1.26});
  EXPECT_EQ(Comparison::OutOfBound, compare(exact, {plain}, near, {.magnitude = &magnitude}).verdict);
  magnitude.quantized = reals({1}, {0.25}, "f64");
  EXPECT_TRUE(compare(exact, {plain}, near, {.magnitude = &magnitude}).agrees());
  EXPECT_EQ(Comparison::OutOfBound, compare(exact, {plain}, far, {.magnitude = &magnitude}).verdict);
}

TEST_F(Tolerance, SecondBoundDetectsAPlantedError) {
  Tensor q = random({2, 8, 16}), k = random({2, 40, 16}), v = random({2, 40, 16});
  // Values of very different magnitude: an error below the first bound, set by the largest element, exceeds the second.
  for (int64_t i = 0; i < v.size(); i += 16)
    v.values[i].real = roundTo(v.elementType, v.values[i].real * 1e-6);
  auto function = parse(attention);
  auto exact = Evaluation::begin(function, {q, k, v});
  llvm::SmallVector<Box> all{Box::whole({2, 8, 16})};
  Tensor o64 = *exact->evaluate(0, all);
  Tensor rounded = *Evaluation::begin(function, {q, k, v}, Precision::Rounded)->evaluate(0, all);
  auto magnitude = exact->magnitude(0, all);
  Comparison comparison = compare(o64, rounded, rounded, {.magnitude = &**magnitude});
  EXPECT_TRUE(comparison.agrees()) << comparison.describe();
  EXPECT_GT(comparison.maxError, 0);
  Tensor planted = rounded;
  planted.values[16].real += 0.9 * comparison.allowed;
  EXPECT_TRUE(compare(o64, rounded, planted).agrees());
  EXPECT_EQ(Comparison::OutOfBound, compare(o64, rounded, planted, {.magnitude = &**magnitude}).verdict);
}

TEST_F(Tolerance, OtherResultsHaveNoMagnitude) {
  auto function = parse("func.func @f(%a: tensor<3xf32>) -> tensor<3xf32> { %b = arith.addf %a, %a : tensor<3xf32> "
                        "return %b : tensor<3xf32> }");
  auto evaluation = Evaluation::begin(function, {reals({3}, {1, 2, 3})});
  auto magnitude = evaluation->magnitude(0, {Box::whole({3})});
  ASSERT_TRUE(mlir::succeeded(magnitude));
  EXPECT_FALSE(magnitude->has_value());
}

} // namespace
