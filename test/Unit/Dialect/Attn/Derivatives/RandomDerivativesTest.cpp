//===- RandomDerivativesTest.cpp - Compositions of all rules ------------------===//
#include "Derivative.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Derivatives/GradientFunction.h"
#include "saccade/Dialect/Attn/Derivatives/ScalarRules.h"
#include "test/Support/Cases.h"
#include "test/Unit/Reference/Harness.h"
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

class RandomAttention : public saccade::reference::Reference {
protected:
  using Tensor = saccade::reference::Tensor;

  /// An attention whose score region is random code of the score, two captured scalars and a captured tensor.
  func::FuncOp build(Region &code) {
    func::FuncOp function = parse(R"(
      func.func @f(%q: tensor<2x3x4xf64>, %k: tensor<1x5x4xf64>, %v: tensor<1x5x3xf64>, %x: f64, %y: f64,
                   %t: tensor<?xf64>, %sink: tensor<2xf64>, %scale: f64) -> (tensor<2x3x3xf64>, tensor<2x3xf64>) {
        %o, %l = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] captures(%x, %y, %t : f64, f64, tensor<?xf64>)
          scale(%scale : f64) sink(%sink : tensor<2xf64>) mask causal<1> lse
          score(%s: f64, %b, %h, %i, %j, %c, %d, %e) { attn.yield %s : f64 }
          : (tensor<2x3x4xf64>, tensor<1x5x4xf64>, tensor<1x5x3xf64>) -> (tensor<2x3x3xf64>, tensor<2x3xf64>)
        return %o, %l : tensor<2x3x3xf64>, tensor<2x3xf64>
      })");
    Block &score = (*function.getOps<AttentionOp>().begin()).getScore().front();
    OpBuilder b = OpBuilder::atBlockTerminator(&score);
    Location loc = function.getLoc();
    IRMapping values;
    Block &from = code.front();
    for (auto [argument, number] : llvm::zip_equal(from.getArguments(), ArrayRef({0, 5, 6, 7})))
      values.map(argument, score.getArgument(number));
    cloneScalarCode(b, from, values);
    // Scores of moderate size.
    Value result = math::SinOp::create(b, loc, values.lookup(from.back().getOperand(0)));
    score.getTerminator()->setOperand(0, result);
    return function;
  }
};

TEST_F(RandomAttention, ForwardAndReverseModeAreTransposed) {
  context.allowUnregisteredDialects();
  RegionOps ops(context);
  Cases cases(400);
  int64_t count = std::max<int64_t>(cases.count / 8, 1), compared = 0;
  for (int64_t seed = cases.seed; seed < cases.seed + count; ++seed) {
    RandomCode code(context, ops, seed, /*size=*/10);
    func::FuncOp function = build(code.region);
    FailureOr<func::FuncOp> forward = createJvpFunction(function), reverse = createGradientFunction(function);
    ASSERT_TRUE(succeeded(forward) && succeeded(reverse)) << "SACCADE_SEED=" << seed;
    generator.seed(seed);
    SmallVector<Tensor> arguments, tangents;
    for (ArrayRef<int64_t> shape :
         std::initializer_list<SmallVector<int64_t>>{{2, 3, 4}, {1, 5, 4}, {1, 5, 3}, {}, {}, {3}, {2}, {}}) {
      arguments.push_back(random(shape, "f64"));
      tangents.push_back(random(shape, "f64"));
    }
    SmallVector<Tensor> pushed(arguments), pulled(arguments), seeds;
    llvm::append_range(pushed, tangents);
    SmallVector<Tensor> results = run(*forward, pushed);
    llvm::append_range(pulled, run(function, arguments));
    for (const Tensor &result : ArrayRef(results).take_front(2))
      pulled.push_back(seeds.emplace_back(random(result.shape, "f64")));
    SmallVector<Tensor> gradients = run(*reverse, pulled);
    double ofForward = 0, ofReverse = 0, size = 0;
    auto add = [&](double &sum, const Tensor &a, const Tensor &b) {
      for (auto [x, y] : llvm::zip_equal(a.values, b.values))
        sum += x.real * y.real, size += std::abs(x.real * y.real);
    };
    for (auto [seed, tangent] : llvm::zip_equal(seeds, ArrayRef(results).drop_front(2)))
      add(ofForward, seed, tangent);
    for (auto [gradient, tangent] : llvm::zip_equal(gradients, tangents))
      add(ofReverse, gradient, tangent);
    if (!std::isfinite(size) || size > 1e8)
      continue;
    ++compared;
    ASSERT_NEAR(ofForward, ofReverse, 1e-10 * (1 + size)) << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1:\n"
                                                          << print(code.region);
  }
  std::printf("%lld of %lld attentions compared\n", (long long)compared, (long long)count);
  if (count >= 40)
    EXPECT_GT(compared * 10, count * 7);
}

} // namespace
