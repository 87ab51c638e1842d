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
#include <limits>

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

// A result beyond the largest number is infinite, or that number; its other bound is the largest number.
TEST_F(ScoreRangeTest, SumsThatAlwaysOverflowAreAtLeastTheLargestNumber) {
  for (double sign : {1.0, -1.0}) {
    std::string digits = sign > 0 ? "3.0e38" : "-3.0e38", clamp = sign > 0 ? "arith.maximumf" : "arith.minimumf";
    FloatRange found = range("%large = arith.constant " + digits + " : f32\n%0 = " + clamp +
                             " %s, %large : f32\n%r = arith.addf %0, %large : f32");
    double largest = std::numeric_limits<float>::max(), infinite = std::numeric_limits<double>::infinity();
    EXPECT_EQ(sign > 0 ? largest : -infinite, found.low);
    EXPECT_EQ(sign > 0 ? infinite : -largest, found.high);
  }
}

TEST_F(ScoreRangeTest, SmallNumbersBecomeZeroInF16) {
  FloatRange found = range(R"(%small = arith.constant 1.0e-8 : f32
    %0 = arith.truncf %small : f32 to f16
    %1 = arith.extf %0 : f16 to f32
    %r = math.log %1 : f32)");
  EXPECT_TRUE(found.contains(-std::numeric_limits<double>::infinity()));
}

TEST_F(ScoreRangeTest, QuotientsOfSubnormalNumbersAreNotInfinite) {
  FloatRange found = range(R"(%tiny = arith.constant 5.0e-324 : f64
    %0 = arith.divf %tiny, %tiny : f64
    %r = arith.truncf %0 : f64 to f32)");
  EXPECT_TRUE(found.contains(1) && found.isFinite());
}

// The product is rounded without an FMA instruction, and then the sum is the rounding error.
TEST_F(ScoreRangeTest, AnAddendMayCancelTheProductOfFMA) {
  FloatRange found = range(R"(%u = arith.constant 1.1 : f32
    %w = arith.constant -1.21 : f32
    %r = math.fma %u, %u, %w : f32)");
  double product = 1.1f * 1.1f, exact = double(1.1f) * 1.1f;
  EXPECT_TRUE(found.contains(product - double(1.21f)) && found.contains(exact - double(1.21f)));
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
