//===- RangeClaimsTest.cpp - Ranges and proofs of stability against evaluation ===//
#include "RandomRegion.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Analysis/ScoreRange.h"
#include "saccade/Dialect/Attn/Derivatives/ScalarRules.h"
#include "test/Support/Cases.h"
#include "llvm/Support/Format.h"
#include "gtest/gtest.h"
#include <algorithm>
#include <cmath>
#include <set>

using namespace mlir;
using namespace saccade::attn;

namespace {

class RangeClaims : public testing::Test {
protected:
  RangeClaims() : context(MLIRContext::Threading::DISABLED) {
    context.allowUnregisteredDialects();
    context
        .loadDialect<AttnDialect, arith::ArithDialect, func::FuncDialect, math::MathDialect, tensor::TensorDialect>();
    ops.emplace(context);
  }
  MLIRContext context;
  std::optional<RegionOps> ops;
};

/// The first value that leaves its range, described; empty if none does.
std::string findViolation(Region &region, const Environment &inputs, int64_t *bounded = nullptr,
                          int64_t *boundable = nullptr) {
  auto known = evaluate(region.front(), inputs);
  for (Operation &op : region.front().without_terminator())
    for (Value value : op.getResults()) {
      if (!isa<FloatType>(value.getType()))
        continue;
      FloatRange range = analyzeRange(value);
      const ScalarLanes &lanes = known.find(value)->second;
      bool areFinite = true;
      for (auto [number, isDefined] : llvm::zip_equal(lanes.values, lanes.isDefined)) {
        areFinite &= isDefined && std::isfinite(number.real);
        if (isDefined && !range.contains(number.real)) {
          std::string text;
          llvm::raw_string_ostream(text) << value << " is " << llvm::format("%.17g", number.real) << ", not in ["
                                         << llvm::format("%.17g, %.17g", range.low, range.high) << "]"
                                         << (range.mayBeNaN ? " or NaN" : "") << "\n";
          return text;
        }
      }
      if (bounded && areFinite && !isa<arith::ConstantOp>(op)) {
        *boundable += 1;
        *bounded += range.isFinite();
      }
    }
  return "";
}

TEST_F(RangeClaims, NoValueLeavesItsRange) {
  Cases cases(800);
  int64_t bounded = 0, boundable = 0;
  for (int64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
    RandomRegion drawn(*ops, context, seed, /*size=*/24, /*lanes=*/96);
    if (findViolation(drawn.region, drawn.inputs, &bounded, &boundable).empty())
      continue;
    auto fails = [&] { return !findViolation(drawn.region, drawn.inputs).empty(); };
    reduce(drawn.region, fails);
    reduce(drawn.inputs, drawn.region.front(), fails);
    FAIL() << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1: " << findViolation(drawn.region, drawn.inputs)
           << drawn.text();
  }
  std::printf("%lld regions: %lld of %lld finite values have a finite range\n", (long long)cases.count,
              (long long)bounded, (long long)boundable);
  // Sound does not imply precise.
  if (cases.count >= 100) {
    EXPECT_GT(bounded * 100, boundable * 30);
  }
}

/// The ends of intervals, between which and at which functions have poles, zeros and extrema, or are not defined.
constexpr double ends[] = {-INFINITY, -3e38,   -100, -3, -1.5, -1, -0.75, -0x1p-40, -0.0,
                           0,         0x1p-40, 0.5,  1,  1.25, 2,  90,    3e38,     INFINITY};

/// A region with one op, whose operands are arguments that are limited to random intervals.
struct LimitedOp {
  LimitedOp(MLIRContext &context, const Signature &signature, std::mt19937_64 &random) : b(&context) {
    Block &block = drawn.emplaceBlock();
    b.setInsertionPointToEnd(&block);
    SmallVector<Value> operands;
    for (Type type : signature.operands) {
      Value argument = block.addArgument(type, b.getUnknownLoc());
      auto isFloat = dyn_cast<FloatType>(type);
      operands.push_back(isFloat ? limited(argument, isFloat, random) : argument);
      if (!isFloat)
        inputs.push_back(lanes([&] { return Scalar{.integer = int64_t(random() % 2)}; }));
    }
    op = RegionOps::create(b, b.getUnknownLoc(), signature, operands, 0);
    YieldOp::create(b, b.getUnknownLoc(), op->getResults());
  }

  /// maximumf keeps NaN and maxnumf does not.
  Value limited(Value argument, FloatType type, std::mt19937_64 &random) {
    auto [low, high] = std::minmax({ends[random() % std::size(ends)], ends[random() % std::size(ends)]});
    bool keepsNaN = random() % 2;
    auto constant = [&](double limit) -> Value {
      return arith::ConstantOp::create(b, b.getUnknownLoc(), b.getFloatAttr(type, limit));
    };
    // Numbers of all sizes between the ends, the ends, and whatever the limits have to change.
    auto number = [&, low, high] {
      double share = std::uniform_real_distribution<>()(random);
      double from = std::max(low, -1e4), to = std::max(from, std::min(high, 1e4));
      switch (random() % 4) {
      case 0:
        return anyScalar(type, random);
      case 1:
        return Scalar{.real = reference::roundTo(type, random() % 2 ? low : high)};
      case 2:
        return Scalar{.real = reference::roundTo(type, from + (to - from) * std::pow(share, 8))};
      default:
        return Scalar{.real = reference::roundTo(type, from + (to - from) * share)};
      }
    };
    inputs.push_back(lanes(number));
    Location loc = b.getUnknownLoc();
    if (!keepsNaN)
      return arith::MinNumFOp::create(b, loc, arith::MaxNumFOp::create(b, loc, argument, constant(low)),
                                      constant(high));
    return arith::MinimumFOp::create(b, loc, arith::MaximumFOp::create(b, loc, argument, constant(low)),
                                     constant(high));
  }

  template <typename Number> static std::vector<Scalar> lanes(Number number) {
    std::vector<Scalar> numbers(64);
    std::generate(numbers.begin(), numbers.end(), number);
    return numbers;
  }

  OpBuilder b;
  Region drawn;
  Environment inputs;
  Operation *op;
};

TEST_F(RangeClaims, EveryScalarOpHasARangeThatHoldsAtItsPolesAndEnds) {
  // Ops of which nothing is known on purpose; a new rule of derivatives needs a range or an entry here.
  const std::set<StringRef> unknown = {};
  Cases cases(200);
  for (StringRef name : getScalarRuleNames()) {
    const std::vector<Signature> &signatures = ops->all().at(name.str());
    int64_t finite = 0;
    for (int64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
      std::mt19937_64 random(seed);
      LimitedOp limited(context, signatures[random() % signatures.size()], random);
      std::string violation = findViolation(limited.drawn, limited.inputs);
      ASSERT_EQ(violation, "") << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1\n" << print(limited.drawn);
      Value result = limited.op->getResult(0);
      finite += isa<FloatType>(result.getType()) && analyzeRange(result).isFinite();
    }
    if (cases.count >= 100) {
      EXPECT_EQ(finite > 0, !unknown.contains(name)) << name.str() << " has " << finite << " finite ranges";
    }
  }
}

TEST_F(RangeClaims, EveryPermittedOpIsDrawn) {
  std::set<std::string> drawn;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    RandomRegion random(*ops, context, seed, 24, 1);
    for (Operation &op : random.region.front())
      drawn.insert(op.getName().getStringRef().str());
  }
  // Ops of the two dialects that are not in the table: constants, and ops that the verifier refuses.
  const std::set<std::string> others = {"arith.constant", "arith.scaling_extf", "arith.scaling_truncf",
                                        "math.clampf",    "math.fpowi",         "math.ipowi",
                                        "math.isinf",     "math.isnormal"};
  for (RegisteredOperationName name : context.getRegisteredOperations()) {
    StringRef dialect = name.getDialectNamespace();
    std::string text = name.getStringRef().str();
    if ((dialect == "arith" || dialect == "math") && !others.contains(text)) {
      EXPECT_TRUE(drawn.contains(text)) << text;
    }
  }
}

} // namespace
