// The tolerance rule on an online softmax: correct results agree, and each planted error is detected.
#include "Harness.h"
#include "saccade/Reference/Tolerance.h"
#include "llvm/Support/FormatVariadic.h"

using namespace saccade::reference;

namespace {

/// Flash attention in f32 as in a kernel, with optional errors.
struct Online {
  static constexpr int64_t heads = 4, kvHeads = 2, queries = 24, keys = 40, depth = 16, tile = 8;
  bool forgetsRescale = false; ///< skips one rescaling of one accumulator
  bool confusesHeads = false;  ///< uses KV head h mod 2 instead of h / 2
  bool confusesKeys = false;   ///< the same for keys only
  bool truncates = false;      ///< truncates results to their type
  mlir::Type weightType;       ///< type to which probabilities are rounded

  Tensor operator()(const Tensor &q, const Tensor &k, const Tensor &v) const {
    Tensor result(q.elementType, q.shape);
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t i = 0; i < queries; ++i)
        row(q, k, v, head, i, result.values.data() + (head * queries + i) * depth);
    return result;
  }

private:
  void row(const Tensor &q, const Tensor &k, const Tensor &v, int64_t head, int64_t i, Scalar *to) const {
    int64_t kvHead = confusesHeads ? head % kvHeads : head / (heads / kvHeads);
    int64_t keyHead = confusesKeys ? head % kvHeads : kvHead;
    auto at = [&](const Tensor &t, int64_t h, int64_t position, int64_t d) {
      return float(t.values[(h * t.shape[1] + position) * depth + d].real);
    };
    float acc[depth] = {}, max = -INFINITY, sum = 0;
    for (int64_t first = 0; first < keys; first += tile) {
      float scores[tile] = {}, newMax = max;
      for (int64_t j = 0; j < tile; ++j) {
        for (int64_t d = 0; d < depth; ++d)
          scores[j] += at(q, head, i, d) * at(k, keyHead, first + j, d);
        scores[j] *= 1 / std::sqrt(float(depth));
        newMax = std::max(newMax, scores[j]);
      }
      float factor = std::exp(max - newMax);
      max = newMax;
      sum *= factor;
      if (!(forgetsRescale && head == 1 && first == tile))
        for (float &value : acc)
          value *= factor;
      for (int64_t j = 0; j < tile; ++j) {
        float weight = std::exp(scores[j] - max);
        sum += weight;
        for (int64_t d = 0; d < depth; ++d)
          acc[d] += float(roundTo(weightType, weight)) * at(v, kvHead, first + j, d);
      }
    }
    for (int64_t d = 0; d < depth; ++d) {
      double quotient = acc[d] / sum, rounded = roundTo(q.elementType, quotient);
      // The neighbour in the direction of 0.
      if (truncates && std::abs(rounded) > std::abs(quotient))
        rounded =
            std::copysign(std::abs(rounded) - std::ldexp(epsilonOf(q.elementType), std::ilogb(quotient)), rounded);
      to[d].real = rounded;
    }
  }
};

class PlantedErrors : public Reference {
protected:
  /// Evaluates attention on normally distributed operands; `deviation` is that of the queries, and so of the scores.
  void attend(llvm::StringRef name, double deviation = 1, int64_t keys = Online::keys) {
    q = random({Online::heads, Online::queries, Online::depth}, name, deviation);
    k = random({Online::kvHeads, keys, Online::depth}, name);
    v = random({Online::kvHeads, keys, Online::depth}, name);
    std::string query = "tensor<4x24x16x" + name.str() + ">", key = "tensor<2x?x16x" + name.str() + ">";
    auto function = parse("func.func @f(%q: " + query + ", %k: " + key + ", %v: " + key + ") -> " + query +
                          "{ %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] : (" + query + ", " + key + ", " +
                          key + ") -> " + query + " return %o : " + query + " }");
    evaluate(function);
  }

  /// Evaluates `function`, whose result has the shape of `q`, on `q`, `k` and `v`.
  void evaluate(mlir::func::FuncOp function) {
    ASSERT_TRUE(function);
    llvm::SmallVector<Box> all{Box::whole(q.shape)};
    auto evaluation = Evaluation::begin(function, {q, k, v});
    exact = *evaluation->evaluate(0, all);
    magnitude = *evaluation->magnitude(0, all);
    fused = *Evaluation::begin(function, {q, k, v}, Precision::Fused)->evaluate(0, all);
    rounding = **evaluation->scoreRounding(0, all);
    rows = *evaluation->rowNumbers(0, all);
    plain.clear();
    for (Precision precision : {Precision::Rounded, Precision::RoundedReversed})
      plain.push_back(*Evaluation::begin(function, {q, k, v}, precision)->evaluate(0, all));
  }

  /// All bounds, as saccade-run has them.
  ResultContext fully() const {
    return {.magnitude = &*magnitude, .scoreRounding = &rounding, .fused = &fused, .rows = rows};
  }

  Comparison compareFully(Online online) { return compare(exact, plain, online(q, k, v), fully()); }

  /// Uses the first bound only, which must suffice to detect the errors.
  Comparison compareOnline(Online online) { return compare(exact, plain, online(q, k, v)); }

  double plainError() {
    double error = 0;
    for (const Tensor &rounded : plain)
      for (int64_t i = 0; i < exact.size(); ++i)
        error = std::max(error, std::abs(rounded.values[i].real - exact.values[i].real));
    return error;
  }

  Tensor q, k, v, exact, fused, rounding;
  std::vector<int64_t> rows;
  std::vector<Tensor> plain;
  std::optional<Magnitude> magnitude;
};

TEST_F(PlantedErrors, AreDetectedInEveryType) {
  for (llvm::StringRef name : {"f32", "f16", "bf16"}) {
    attend(name);
    mlir::Type own = type(name);
    Comparison right = compare(exact, plain, Online{.weightType = own}(q, k, v), {.magnitude = &*magnitude});
    EXPECT_TRUE(right.agrees()) << name.str() << ' ' << right.describe();
    EXPECT_GT(right.maxError, 0);
    EXPECT_EQ(Comparison::TooFar, compareOnline({.forgetsRescale = true, .weightType = own}).verdict) << name.str();
    EXPECT_EQ(Comparison::TooFar, compareOnline({.confusesHeads = true, .weightType = own}).verdict) << name.str();
  }
}

TEST_F(PlantedErrors, ProbabilitiesOfF32RoundedTo16BitsAreDetected) {
  attend("f32");
  for (llvm::StringRef name : {"f16", "bf16"})
    EXPECT_EQ(Comparison::TooFar, compareOnline({.weightType = type(name)}).verdict) << name.str();
}

TEST_F(PlantedErrors, TruncatedResultsOf16BitsAreDetected) {
  for (llvm::StringRef name : {"f16", "bf16"})
    for (llvm::StringRef weightType : {"f32", name.data()}) {
      attend(name);
      Comparison right = compareFully({.weightType = type(weightType)});
      EXPECT_TRUE(right.agrees()) << name.str() << ' ' << right.describe();
      EXPECT_LT(std::abs(right.bias), 0.3) << name.str();
      Comparison truncated = compareFully({.truncates = true, .weightType = type(weightType)});
      EXPECT_FALSE(truncated.agrees()) << name.str() << ' ' << weightType.str();
      EXPECT_LT(truncated.bias, -0.8) << name.str();
      // No error of a single element shows it.
      EXPECT_TRUE(truncated.verdict == Comparison::Biased || truncated.verdict == Comparison::MeanTooFar);
    }
}

TEST_F(PlantedErrors, KeysOfAnotherHeadAreDetectedIfScoresAreSmall) {
  // With small scores the probabilities are nearly uniform, and so the error is small.
  for (llvm::StringRef name : {"f32", "f16", "bf16"})
    for (double deviation : {1.0, 0.1, 0.03}) {
      attend(name, deviation);
      EXPECT_TRUE(compareFully({.weightType = type(name)}).agrees()) << name.str() << ' ' << deviation;
      EXPECT_FALSE(compareFully({.confusesKeys = true, .weightType = type(name)}).agrees())
          << name.str() << ' ' << deviation;
    }
}

TEST_F(PlantedErrors, AWrongScaleIsDetected) {
  auto attention = [&](double scale) {
    return parse(llvm::formatv("func.func @f(%q: tensor<64x64xf32>, %k: tensor<100x64xf32>, %v: tensor<100x64xf32>) -> "
                               "tensor<64x64xf32> {{ %o = attn.attention %q[s,d], %k[s,d], %v[s,d] scale({0:e15}) : "
                               "(tensor<64x64xf32>, tensor<100x64xf32>, tensor<100x64xf32>) -> tensor<64x64xf32> "
                               "return %o : tensor<64x64xf32> }",
                               scale)
                     .str());
  };
  q = random({64, 64});
  k = random({100, 64});
  v = random({100, 64});
  evaluate(attention(0.125));
  // Ten units of f32.
  for (double error : {0.0, 1.2e-6}) {
    Tensor actual = run(attention(0.125 * (1 + error)), {q, k, v}, Precision::Rounded)[0];
    Comparison comparison = compare(exact, plain, actual, fully());
    EXPECT_EQ(error == 0, comparison.agrees()) << error << ' ' << comparison.describe();
  }
}

TEST_F(PlantedErrors, BoundOf16BitsIsThatOfAFusedKernel) {
  // One unit at the smallest elements is an error of a fused kernel; plain evaluation allows several at each element.
  attend("bf16");
  Tensor actual = Online{.weightType = type("f32")}(q, k, v);
  ResultContext context = fully();
  ASSERT_TRUE(compare(exact, plain, actual, context).agrees());
  auto largest = llvm::max_element(
      actual.values, [](const Scalar &a, const Scalar &b) { return std::abs(a.real) < std::abs(b.real); });
  double unit = std::ldexp(epsilonOf(type("bf16")), std::ilogb(largest->real));
  largest->real += 3 * unit;
  EXPECT_EQ(Comparison::OutOfBound, compare(exact, plain, actual, context).verdict);
  EXPECT_TRUE(compare(exact, plain, actual).agrees());
  // The least error that is refused is within the bound of attention in general.
  while (!compare(exact, plain, actual, context).agrees())
    largest->real -= unit / 8;
  largest->real += unit / 8;
  EXPECT_EQ(Comparison::OutOfBound, compare(exact, plain, actual, context).verdict);
  EXPECT_TRUE(compare(exact, plain, actual, {.magnitude = &*magnitude, .rows = rows}).agrees());
}

TEST_F(PlantedErrors, ThreeTimesThePlainErrorIsTooFar) {
  // With large scores, the error of plain evaluation is far above the rounding floor.
  attend("f32", 100);
  double error = plainError();
  ASSERT_GT(error, 20 * epsilonOf(type("f32")));
  for (auto [factor, verdict] : {std::pair(1.9, Comparison::Agrees), std::pair(3.0, Comparison::TooFar)}) {
    Tensor actual = exact;
    actual.values[37].real += factor * error;
    actual.elementType = type("f32");
    EXPECT_EQ(verdict, compare(exact, plain, actual).verdict);
  }
}

TEST_F(PlantedErrors, OneUlpIsAccepted) {
  // The output is the value of the only key, which is exact in every type, so plain evaluation has no error.
  for (llvm::StringRef name : {"f32", "f16", "bf16"}) {
    attend(name, 1, 1);
    EXPECT_EQ(0, plainError());
    auto resultWith = [&](int units, int64_t step) {
      Tensor actual = exact;
      actual.elementType = type(name);
      for (int64_t i = 0; i < actual.size(); i += step)
        if (double &value = actual.values[i].real; value != 0)
          value += units * std::ldexp(epsilonOf(type(name)), std::ilogb(value));
      return actual;
    };
    for (auto [units, agrees] : {std::pair(1, true), std::pair(6, false)}) {
      Tensor actual = resultWith(units, agrees ? 16 : 1);
      EXPECT_EQ(agrees, compare(exact, plain, actual, {.magnitude = &*magnitude}).agrees())
          << name.str() << ' ' << units;
      EXPECT_EQ(agrees, compare(exact, plain, actual).agrees()) << name.str() << ' ' << units;
    }
    // One unit at every element is more than rounding to 16 bits commits.
    EXPECT_EQ(name == "f32" ? Comparison::Agrees : Comparison::MeanTooFar,
              compare(exact, plain, resultWith(1, 1)).verdict)
        << name.str();
  }
}

} // namespace
