//===- ScalarRulesTest.cpp - Every rule against finite differences ------------===//
#include "saccade/Dialect/Attn/Derivatives/ScalarRules.h"
#include "Derivative.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>

using namespace mlir;
using namespace saccade::attn;

namespace {

/// The signature of an op on f64 where it has one.
const Signature &wideSignature(const RegionOps &ops, StringRef name) {
  const std::vector<Signature> &all = ops.all().at(name.str());
  for (const Signature &each : all) {
    auto isWide = [](Type type) { return type.isF64() || type.isInteger(1); };
    if (llvm::all_of(each.operands, isWide) && each.results.front().isF64())
      return each;
  }
  return all.front();
}

TEST_F(DerivativesTest, EveryRuleAgreesWithFiniteDifferences) {
  RegionOps ops(context);
  std::mt19937_64 random(1);
  for (StringRef name : getScalarRuleNames()) {
    ArrayRef<Domain> domains = domainsOf(name);
    ASSERT_FALSE(domains.empty()) << name.str() << " has a rule and no domain in this test";
    const Signature &signature = wideSignature(ops, name);
    Region region;
    Block &block = region.emplaceBlock();
    Location loc = UnknownLoc::get(&context);
    block.addArguments(signature.operands, SmallVector<Location>(signature.operands.size(), loc));
    OpBuilder b(&context);
    b.setInsertionPointToEnd(&block);
    Operation *op = RegionOps::create(b, loc, signature, block.getArguments(), 0);
    YieldOp::create(b, loc, op->getResults());

    std::vector<double> seeds;
    for (size_t i = 0; i < op->getNumResults(); ++i)
      seeds.push_back(0.75 - 2 * double(i));
    Derivative derivative(region, seeds);
    ASSERT_TRUE(derivative.isValid()) << name.str();
    for (unsigned repetition = 0; repetition < 24; ++repetition) {
      Point point;
      for (Domain domain : domains)
        point.push_back(domain == Domain::Flag ? Scalar{.integer = repetition % 2}
                                               : Scalar{.real = anyOf(domain, random)});
      std::vector<double> reverse = derivative.reverse(point), forward = derivative.forward(point);
      // Differences cannot see the derivative of a rounded result.
      bool isRounded = isa<arith::ExtFOp, arith::TruncFOp>(op);
      std::vector<double> expected = isRounded ? seeds : derivative.differences(point, 1e-4);
      for (size_t i = 0; i < domains.size(); ++i) {
        EXPECT_NEAR(reverse[i], expected[i], 1e-8 * (1 + std::abs(expected[i]))) << name.str() << ", operand " << i;
        EXPECT_NEAR(forward[i], reverse[i], 1e-14 * (1 + std::abs(reverse[i]))) << name.str() << ", operand " << i;
      }
    }
  }
}

TEST_F(DerivativesTest, EveryFloatOpThatRegionsPermitHasARuleExceptBitcasts) {
  RegionOps ops(context);
  std::vector<std::string> missing;
  for (auto &[name, signatures] : ops.all()) {
    auto isFloat = [](Type type) { return isa<FloatType>(type); };
    bool isOfFloats = llvm::any_of(signatures, [&](const Signature &signature) {
      return llvm::any_of(signature.operands, isFloat) && llvm::any_of(signature.results, isFloat);
    });
    if (isOfFloats && !llvm::is_contained(getScalarRuleNames(), StringRef(name)))
      missing.push_back(name);
  }
  EXPECT_EQ(missing, std::vector<std::string>{"arith.bitcast"});
  EXPECT_GT(getScalarRuleNames().size(), 40u);
}

TEST_F(DerivativesTest, PointsWithoutADerivativeHaveThatOfPyTorch) {
  auto both = [&](const std::string &op, double x, double y) {
    std::vector<double> found = derivatives("%r = " + op + " %x, %y : f64\n return %r : f64", x, y);
    return std::pair(found[0], found[1]);
  };
  auto one = [&](const std::string &op, double x) {
    return derivatives("%r = " + op + " %x : f64\n return %r : f64", x)[0];
  };
  // torch.maximum and torch.minimum share the derivative of equal operands.
  EXPECT_EQ(both("arith.maximumf", 2, 2), std::pair(0.5, 0.5));
  EXPECT_EQ(both("arith.minimumf", 2, 2), std::pair(0.5, 0.5));
  // torch.fmax and torch.fmin give it to the first one, and to the other operand of a NaN.
  EXPECT_EQ(both("arith.maxnumf", 2, 2), std::pair(1.0, 0.0));
  EXPECT_EQ(both("arith.minnumf", 2, 2), std::pair(1.0, 0.0));
  EXPECT_EQ(both("arith.maxnumf", 2, NAN), std::pair(1.0, 0.0));
  EXPECT_EQ(both("arith.maxnumf", NAN, 2), std::pair(0.0, 1.0));
  EXPECT_EQ(both("arith.minnumf", NAN, 2), std::pair(0.0, 1.0));
  EXPECT_EQ(one("math.absf", 0), 0);
  EXPECT_EQ(one("math.absf", -0.0), 0);
  EXPECT_EQ(one("math.floor", 2), 0);
  EXPECT_EQ(both("math.copysign", 0, -1).first, 0);
  EXPECT_EQ(both("math.powf", 0, 0), std::pair(0.0, 0.0));
  EXPECT_EQ(both("math.powf", 0, 2), std::pair(0.0, 0.0));
  EXPECT_EQ(derivatives("%k = arith.constant 3.0 : f64\n %r = math.powf %x, %k : f64\n return %r : f64", -2)[0], 12);
}

TEST_F(DerivativesTest, DerivativesOf16BitValuesAreF32) {
  Region &region = parse(R"(%h = arith.truncf %x : f64 to f16
    %p = arith.mulf %h, %h : f16
    %w = arith.extf %p : f16 to f64
    return %w : f64)");
  Derivative derivative(region, {1.0});
  ASSERT_TRUE(derivative.isValid());
  // 2 · 1.0009765625 is not an f16.
  double x = 1 + std::ldexp(1.0, -10) + std::ldexp(1.0, -20);
  Point point = {{.real = x}, {.real = 0}, {.integer = 0}, {.real = 0}};
  EXPECT_EQ(derivative.reverse(point)[0], 2 * (1 + std::ldexp(1.0, -10)));
  EXPECT_EQ(derivative.forward(point)[0], 2 * (1 + std::ldexp(1.0, -10)));
}

TEST_F(DerivativesTest, BitsOfAFloatAreNotDifferentiable) {
  EXPECT_NE(errorOf(R"(%i = arith.bitcast %x : f64 to i64
    %r = arith.bitcast %i : i64 to f64
    return %r : f64)")
                .find("'arith.bitcast' op has no derivative, but the test is differentiated through it"),
            std::string::npos);
}

TEST_F(DerivativesTest, AnOpWithoutARuleIsNamed) {
  EXPECT_NE(
      errorOf("%r = math.clampf %x to [%y, %y] : f64\n return %r : f64").find("'math.clampf' op has no derivative"),
      std::string::npos);
  EXPECT_NE(
      errorOf("%r = \"test.unknown\"(%x) : (f64) -> f64\n return %r : f64").find("'test.unknown' op has no derivative"),
      std::string::npos);
  // It does no harm where the result does not depend on it.
  EXPECT_EQ(derivatives("%r = math.clampf %x to [%y, %y] : f64\n return %x : f64", 2),
            (std::vector<double>{1, 0, 0, 0}));
}

TEST_F(DerivativesTest, ComparisonsAndConversionsToIntegersAreSteps) {
  EXPECT_EQ(derivatives(R"(%i = arith.fptosi %x : f64 to i32
    %f = arith.sitofp %i : i32 to f64
    %g = arith.cmpf ogt, %y, %f : f64
    %r = arith.select %g, %f, %y : f64
    return %r : f64)",
                        1.5, 0.5),
            (std::vector<double>{0, 1, 0, 0}));
}

} // namespace
