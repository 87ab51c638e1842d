//===- ScoreRangeTest.cpp - Ranges of scores against scores -------------------===//
#include "saccade/Dialect/Attn/Analysis/ScoreRange.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Parser/Parser.h"
#include "saccade/Dialect/Attn/Analysis/MaskProof.h"
#include "saccade/Dialect/Attn/Analysis/Stability.h"
#include "gtest/gtest.h"
#include <cmath>
#include <functional>
#include <random>

using namespace mlir;
using namespace saccade::attn;

namespace {

class ScoreRangeTest : public testing::Test {
protected:
  ScoreRangeTest() : context(MLIRContext::Threading::DISABLED) {
    context
        .loadDialect<AttnDialect, arith::ArithDialect, func::FuncDialect, math::MathDialect, tensor::TensorDialect>();
  }

  /// The attention of a program that has one, over queries %q and with the capture %c : f32.
  AttentionOp attention(const std::string &clauses, const std::string &type = "f32") {
    std::string tensor = "tensor<?x8x" + type + ">";
    module = parseSourceString<ModuleOp>("func.func @one(%q: " + tensor + ", %c: f32) -> " + tensor +
                                             " {\n %o = attn.attention %q[s,d], %q[s,d], %q[s,d] captures(%c : f32) " +
                                             clauses + " : (" + tensor + ", " + tensor + ", " + tensor + ") -> " +
                                             tensor + "\n return %o : " + tensor + "\n}",
                                         &context);
    AttentionOp found;
    module->walk([&](AttentionOp op) { found = op; });
    return found;
  }
  FloatRange range(const std::string &body) {
    return analyzeScore(attention("score(%s, %b, %h, %i, %j, %x) {\n" + body + "\n attn.yield %r : f32 }").getScore());
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

TEST_F(ScoreRangeTest, ASoftCapBoundsEveryScore) {
  FloatRange found = range(R"(%cap = arith.constant 30.0 : f32
    %0 = arith.divf %s, %cap : f32
    %1 = math.tanh %0 : f32
    %r = arith.mulf %1, %cap : f32)");
  EXPECT_TRUE(found.isFinite());
  EXPECT_TRUE(found.contains(30) && found.contains(-30) && found.mayBeNaN);
  EXPECT_LT(found.high, 30.01);
  EXPECT_GT(found.low, -30.01);
}

TEST_F(ScoreRangeTest, NothingIsKnownOfWhatACaptureScales) {
  EXPECT_FALSE(range(R"(%1 = math.tanh %s : f32
    %r = arith.mulf %1, %x : f32)")
                   .isFinite());
  EXPECT_FALSE(range("%r = arith.addf %s, %x : f32").isFinite());
  EXPECT_FALSE(range(R"(%one = arith.constant 1.0 : f32
    %r = arith.divf %one, %s : f32)")
                   .isFinite());
}

TEST_F(ScoreRangeTest, LimitsHoldWhateverIsLimited) {
  FloatRange found = range(R"(%low = arith.constant -4.0 : f32
    %high = arith.constant 5.0 : f32
    %0 = arith.maximumf %s, %low : f32
    %r = arith.minimumf %0, %high : f32)");
  EXPECT_EQ(-4, found.low);
  EXPECT_EQ(5, found.high);
}

TEST_F(ScoreRangeTest, SumsThatOverflowAreInfinite) {
  FloatRange found = range(R"(%large = arith.constant 3.0e38 : f32
    %0 = math.tanh %s : f32
    %1 = arith.mulf %0, %large : f32
    %r = arith.addf %1, %1 : f32)");
  EXPECT_TRUE(found.contains(std::numeric_limits<double>::infinity()));
}

/// A random region of float ops, and an evaluator for it.
class RandomScore {
public:
  RandomScore(MLIRContext &context, unsigned seed) : random(seed), b(&context), loc(b.getUnknownLoc()) {
    Block &block = region.emplaceBlock();
    Type f32 = b.getF32Type(), index = b.getIndexType();
    block.addArguments({f32, index, index, index, index, f32}, SmallVector<Location>(6, loc));
    b.setInsertionPointToEnd(&block);
    add(block.getArgument(0), [](const Inputs &in) { return in.score; });
    add(block.getArgument(5), [](const Inputs &in) { return in.capture; });
    Value narrow = arith::IndexCastOp::create(b, loc, b.getI32Type(), block.getArgument(4));
    add(arith::SIToFPOp::create(b, loc, f32, narrow), [](const Inputs &in) { return float(in.key); });
    for (float number : {0.0f, 1.5f, -20.0f, 3.0e38f, 1.0e-38f})
      add(arith::ConstantOp::create(b, loc, b.getF32FloatAttr(number)), [=](const Inputs &) { return number; });
    for (int i = 0; i < 8; ++i)
      draw();
    YieldOp::create(b, loc, ValueRange(values.back()));
  }

  struct Inputs {
    float score, capture;
    int32_t key;
  };
  float operator()(const Inputs &in) const { return functions.back()(in); }
  Region region;

private:
  using Function = std::function<float(const Inputs &)>;
  void add(Value value, Function function) {
    values.push_back(value);
    functions.push_back(std::move(function));
  }
  template <class Op> void binary(float (*compute)(float, float)) {
    auto [i, j] = std::pair(pick(), pick());
    Function x = functions[i], y = functions[j];
    add(Op::create(b, loc, values[i], values[j]), [=](const Inputs &in) { return compute(x(in), y(in)); });
  }
  template <class Op> void unary(float (*compute)(float)) {
    size_t i = pick();
    Function x = functions[i];
    add(Op::create(b, loc, values[i]), [=](const Inputs &in) { return compute(x(in)); });
  }
  /// A random value, later ones with higher probability, so that chains are long.
  size_t pick() { return std::max(random() % values.size(), random() % values.size()); }
  void draw() {
    switch (random() % 16) {
    case 0:
      return binary<arith::AddFOp>([](float x, float y) { return x + y; });
    case 1:
      return binary<arith::SubFOp>([](float x, float y) { return x - y; });
    case 2:
    case 3:
      return binary<arith::MulFOp>([](float x, float y) { return x * y; });
    case 4:
      return binary<arith::DivFOp>([](float x, float y) { return x / y; });
    case 5:
      return binary<arith::MaximumFOp>(
          [](float x, float y) { return std::isnan(x) || std::isnan(y) ? NAN : std::max(x, y); });
    case 6:
      return binary<arith::MinimumFOp>(
          [](float x, float y) { return std::isnan(x) || std::isnan(y) ? NAN : std::min(x, y); });
    case 7:
      return binary<arith::MaxNumFOp>([](float x, float y) { return std::fmax(x, y); });
    case 8:
      return binary<arith::MinNumFOp>([](float x, float y) { return std::fmin(x, y); });
    case 9:
      return unary<arith::NegFOp>([](float x) { return -x; });
    case 10:
      return unary<math::AbsFOp>([](float x) { return std::abs(x); });
    case 11:
    case 12:
      return unary<math::TanhOp>([](float x) { return std::tanh(x); });
    case 13:
      return unary<math::ExpOp>([](float x) { return std::exp(x); });
    case 14:
      return unary<math::SqrtOp>([](float x) { return std::sqrt(x); });
    default:
      return unary<math::SinOp>([](float x) { return std::sin(x); });
    }
  }

  std::mt19937 random;
  OpBuilder b;
  Location loc;
  SmallVector<Value> values;
  std::vector<Function> functions;
};

TEST_F(ScoreRangeTest, NoScoreLeavesTheRangeOfItsRegion) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const float floats[] = {0.0f,   -0.0f, 1.0f,   -1.0f,   0.3f,     -7.0f, 88.0f, -100.0f, 1e-30f,
                          1e-45f, 1e19f, -1e20f, 3.4e38f, -3.4e38f, inf,   -inf,  NAN};
  const int32_t keys[] = {0, 1, -5, 1000, INT32_MAX, INT32_MIN};
  unsigned finite = 0;
  for (unsigned seed = 0; seed < 2000; ++seed) {
    RandomScore score(context, seed);
    FloatRange found = analyzeScore(score.region);
    finite += found.isFinite();
    for (float first : floats)
      for (float second : floats)
        for (int32_t key : keys) {
          float result = score({first, second, key});
          ASSERT_TRUE(found.contains(result))
              << "seed " << seed << ": " << result << " is not in [" << found.low << ", " << found.high << "]"
              << (found.mayBeNaN ? " or NaN" : "") << " for s = " << first << ", c = " << second << ", k = " << key;
        }
  }
  // Sound does not imply precise: some ranges must be finite.
  EXPECT_GT(finite, 200u);
}

TEST_F(ScoreRangeTest, SoftmaxesAreProvedOnlyWhereScoresAreBoundedAndAKeyIsSeen) {
  std::string capped = "score(%s, %b, %h, %i, %j, %x) {\n %r = math.tanh %s : f32\n attn.yield %r : f32 }";
  auto prove = [&](const std::string &clauses) { return analyzeStability(attention(clauses)); };
  EXPECT_EQ(FiniteMax::EveryStep, prove(capped).finiteMax);
  EXPECT_EQ(FiniteMax::InOrder, prove("mask causal<top_left> " + capped).finiteMax);
  EXPECT_EQ(FiniteMax::InOrder, prove("mask causal<3> " + capped).finiteMax);
  // The first query has no visible key, later queries not the first one; there may be fewer keys than queries.
  for (const char *mask : {"mask causal<-1> ", "mask window<8, 0> ", "mask causal<bottom_right> "}) {
    Stability found = prove(mask + capped);
    EXPECT_EQ(FiniteMax::Never, found.finiteMax) << mask;
    EXPECT_NE(std::string::npos, found.reason.find("a query may attend to no key of a step")) << found.reason;
  }
  EXPECT_EQ("Q·Kᵀ may overflow to −∞", prove("").reason);
  EXPECT_EQ("scores are in [-1, 1], and every query attends to every key", prove(capped).reason);
}

TEST_F(ScoreRangeTest, WhatAMaskCanProveIsKnownWithoutSizes) {
  auto prove = [&](const std::string &mask) {
    return proveMask(cast<ScoringOpInterface>(attention(mask).getOperation()));
  };
  MaskProof none = prove(""), causal = prove("mask causal<top_left>");
  EXPECT_TRUE(none.isExact && none.seesFirstKey && !none.hasBounds);
  EXPECT_TRUE(causal.isExact && causal.seesFirstKey && causal.hasBounds);
  MaskProof strided = prove(R"(mask(%b, %h, %i, %j, %x) {
    %c4 = arith.constant 4 : index
    %c0 = arith.constant 0 : index
    %0 = arith.remui %j, %c4 : index
    %r = arith.cmpi eq, %0, %c0 : index
    attn.yield %r : i1 })");
  EXPECT_TRUE(!strided.isExact && strided.seesFirstKey && strided.canBeEmpty && strided.tables.empty());
  MaskProof floats = prove(R"(mask(%b, %h, %i, %j, %x) {
    %zero = arith.constant 0.0 : f32
    %r = arith.cmpf ogt, %x, %zero : f32
    attn.yield %r : i1 })");
  EXPECT_TRUE(!floats.isExact && !floats.canBeEmpty && !floats.canBeFull && !floats.seesFirstKey);
}

} // namespace
