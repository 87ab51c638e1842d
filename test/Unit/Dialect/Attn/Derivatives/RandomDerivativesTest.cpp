//===- RandomDerivativesTest.cpp - Compositions of all rules ------------------===//
#include "Derivative.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Derivatives/ScalarRules.h"
#include "test/Support/Cases.h"
#include <cmath>
#include <map>

using namespace mlir;
using namespace saccade::attn;

namespace {

/// Random code of the ops with rules, on f64 values. Operands are brought into the domain of an op.
class RandomCode {
public:
  RandomCode(MLIRContext &context, const RegionOps &ops, uint64_t seed, unsigned size)
      : ops(ops), random(seed), b(&context), loc(b.getUnknownLoc()) {
    Block &block = region.emplaceBlock();
    Type real = b.getF64Type();
    block.addArguments({real, real, real, RankedTensorType::get({ShapedType::kDynamic}, real)},
                       SmallVector<Location>(4, loc));
    b.setInsertionPointToEnd(&block);
    for (Value argument : block.getArguments().take_front(3))
      values.push_back(argument);
    for (unsigned i = 0; i < size; ++i)
      draw();
    YieldOp::create(b, loc, ValueRange({values.back(), values[values.size() - 2]}));
  }
  Point point() {
    Point numbers(4);
    for (Scalar &number : numbers)
      number.real = anyOf(Domain::Any, random);
    return numbers;
  }

  Region region;
  std::map<std::string, unsigned> drawn;

private:
  unsigned pick(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random); }
  Value constant(double number) { return arith::ConstantOp::create(b, loc, b.getF64FloatAttr(number)); }
  Value anyValue() {
    // Later values with higher probability.
    return values[std::max(pick(values.size()), pick(values.size()))];
  }
  Value operand(Domain domain) {
    if (domain == Domain::Flag)
      return arith::CmpFOp::create(b, loc, pick(2) ? arith::CmpFPredicate::OGT : arith::CmpFPredicate::ULE, anyValue(),
                                   anyValue());
    Value value = pick(8) == 0 ? constant(anyOf(domain, random)) : anyValue();
    auto wave = [&](double scale) {
      return arith::MulFOp::create(b, loc, math::SinOp::create(b, loc, value), constant(scale));
    };
    switch (domain) {
    case Domain::Small:
      return wave(1.5);
    case Domain::Unit:
      return wave(0.8);
    case Domain::Positive:
      return arith::AddFOp::create(b, loc, wave(1), constant(1.5));
    case Domain::AboveOne:
      return arith::AddFOp::create(b, loc, wave(1), constant(2.5));
    default:
      return value;
    }
  }
  void draw() {
    if (pick(12) == 0) {
      Value index = arith::ConstantIndexOp::create(b, loc, pick(3));
      values.push_back(tensor::ExtractOp::create(b, loc, region.getArgument(3), index));
      return;
    }
    SmallVector<StringRef> names = getScalarRuleNames();
    StringRef name = names[pick(names.size())];
    for (const Signature &signature : ops.all().at(name.str())) {
      if (!llvm::all_of(signature.operands, [](Type type) { return type.isF64() || type.isInteger(1); }) ||
          !signature.results.front().isF64())
        continue;
      SmallVector<Value> operands =
          llvm::map_to_vector(domainsOf(name), [&](Domain domain) { return operand(domain); });
      Operation *op = RegionOps::create(b, loc, signature, operands, 0);
      llvm::append_range(values, op->getResults());
      ++drawn[name.str()];
      return;
    }
  }

  const RegionOps &ops;
  std::mt19937_64 random;
  OpBuilder b;
  Location loc;
  std::vector<Value> values;
};

TEST_F(DerivativesTest, CompositionsAgreeInBothModesAndWithDifferences) {
  RegionOps ops(context);
  Cases cases(400);
  int64_t compared = 0, possible = 0;
  std::map<std::string, unsigned> drawn;
  for (int64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
    RandomCode code(context, ops, seed, /*size=*/14);
    for (auto [name, count] : code.drawn)
      drawn[name] += count;
    Derivative derivative(code.region, {1.0, -0.5});
    ASSERT_TRUE(derivative.isValid()) << "SACCADE_SEED=" << seed;
    for (unsigned repetition = 0; repetition < 4; ++repetition) {
      Point point = code.point();
      std::vector<double> reverse = derivative.reverse(point), forward = derivative.forward(point);
      std::vector<double> wide = derivative.differences(point, 2e-4), narrow = derivative.differences(point, 1e-4);
      double value = derivative.value(point), largest = 0;
      for (double each : forward)
        largest = std::max(largest, std::abs(each));
      if (!std::isfinite(largest) || largest > 1e8 || std::abs(value) > 1e8)
        continue;
      for (size_t i = 0; i < point.size(); ++i) {
        ++possible;
        ASSERT_NEAR(reverse[i], forward[i], 1e-9 * (1 + largest))
            << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1: argument " << i << " of\n"
            << print(code.region);
        // A step or a kink nearby, or a function that changes too fast for differences.
        double doubt = std::abs(wide[i] - narrow[i]);
        if (!(doubt < 1e-5 * (1 + largest)))
          continue;
        ++compared;
        ASSERT_NEAR(reverse[i], narrow[i], 10 * doubt + 1e-7 * (1 + largest + std::abs(value)))
            << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1: argument " << i << " of\n"
            << print(code.region);
      }
    }
  }
  std::printf("seeds %lld to %lld: %lld of %lld derivatives compared with differences\n", (long long)cases.seed,
              (long long)(cases.seed + cases.count - 1), (long long)compared, (long long)possible);
  if (cases.count >= 100) {
    EXPECT_GT(compared * 10, possible * 8);
    EXPECT_GT(possible, cases.count * 12);
    for (StringRef name : getScalarRuleNames())
      if (name != "arith.extf" && name != "arith.truncf")
        EXPECT_GT(drawn[name.str()], 0u) << name.str();
  }
}

} // namespace
