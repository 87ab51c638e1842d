//===- Derivative.cpp - Derivatives by both modes and by differences ----------===//
#include "Derivative.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Parser/Parser.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

ArrayRef<Domain> domainsOf(StringRef name) {
  using enum Domain;
  static const llvm::StringMap<SmallVector<Domain, 3>> domains = {
      {"arith.addf", {Any, Any}},
      {"arith.subf", {Any, Any}},
      {"arith.mulf", {Any, Any}},
      {"arith.divf", {Any, Positive}},
      {"arith.remf", {Any, Positive}},
      {"arith.negf", {Any}},
      {"arith.maximumf", {Any, Any}},
      {"arith.minimumf", {Any, Any}},
      {"arith.maxnumf", {Any, Any}},
      {"arith.minnumf", {Any, Any}},
      {"arith.select", {Flag, Any, Any}},
      {"arith.extf", {Any}},
      {"arith.truncf", {Any}},
      {"math.absf", {Any}},
      {"math.copysign", {Any, Any}},
      {"math.fma", {Any, Any, Any}},
      {"math.ceil", {Any}},
      {"math.floor", {Any}},
      {"math.round", {Any}},
      {"math.roundeven", {Any}},
      {"math.trunc", {Any}},
      {"math.exp", {Small}},
      {"math.exp2", {Small}},
      {"math.expm1", {Small}},
      {"math.log", {Positive}},
      {"math.log2", {Positive}},
      {"math.log10", {Positive}},
      {"math.log1p", {Positive}},
      {"math.sqrt", {Positive}},
      {"math.rsqrt", {Positive}},
      {"math.cbrt", {Positive}},
      {"math.powf", {Positive, Small}},
      {"math.sin", {Any}},
      {"math.cos", {Any}},
      {"math.sincos", {Any}},
      {"math.tan", {Unit}},
      {"math.asin", {Unit}},
      {"math.acos", {Unit}},
      {"math.atan", {Any}},
      {"math.atan2", {Any, Positive}},
      {"math.sinh", {Small}},
      {"math.cosh", {Small}},
      {"math.tanh", {Any}},
      {"math.asinh", {Any}},
      {"math.acosh", {AboveOne}},
      {"math.atanh", {Unit}},
      {"math.erf", {Any}},
      {"math.erfc", {Any}},
  };
  auto it = domains.find(name);
  return it == domains.end() ? ArrayRef<Domain>() : ArrayRef(it->second);
}

double anyOf(Domain domain, std::mt19937_64 &random) {
  auto between = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  switch (domain) {
  case Domain::Any:
    return between(-3, 3);
  case Domain::Small:
    return between(-2, 2);
  case Domain::Positive:
    return between(0.2, 4);
  case Domain::Unit:
    return between(-0.9, 0.9);
  case Domain::AboveOne:
    return between(1.2, 4);
  case Domain::Flag:
    break;
  }
  llvm_unreachable("flags are not floats");
}

//===----------------------------------------------------------------------===//
// Derivative
//===----------------------------------------------------------------------===//

static bool isInput(Value value) { return isa<FloatType>(getElementTypeOrSelf(value.getType())); }

Derivative::Derivative(Region &region, ArrayRef<double> seeds) : region(region), seeds(seeds) {
  Block &source = region.front();
  Location loc = source.back().getLoc();
  auto begin = [&](Region &to) {
    Block &block = to.emplaceBlock();
    block.addArguments(source.getArgumentTypes(), SmallVector<Location>(source.getNumArguments(), loc));
    OpBuilder b(loc.getContext());
    b.setInsertionPointToEnd(&block);
    return b;
  };
  auto constant = [&](OpBuilder &b, Value like, double number) -> Value {
    return arith::ConstantOp::create(b, loc, b.getFloatAttr(getScoreType(getElementTypeOrSelf(like)), number));
  };
  auto finish = [&](OpBuilder &b, ValueRange results) { YieldOp::create(b, loc, results); };
  ValueRange results = source.back().getOperands();

  OpBuilder reverse = begin(reverseRegion);
  IRMapping values;
  values.map(source.getArguments(), reverseCode().getArguments());
  cloneScalarCode(reverse, source, values);
  SmallVector<std::pair<Value, Value>> seeded;
  for (auto [result, seed] : llvm::zip_equal(results, seeds))
    seeded.emplace_back(result, constant(reverse, result, seed));
  SmallVector<Value> inputs(llvm::make_filter_range(source.getArguments(), isInput));
  auto gradients = emitReverseMode(reverse, "the test", source, values, seeded, inputs);
  // The sum over the reads of a tensor, which all read its only element.
  SmallVector<Value> sums;
  for (Value argument : source.getArguments()) {
    Value sum = constant(reverse, isInput(argument) ? argument : results.front(), 0);
    if (succeeded(gradients))
      for (const ElementGradient &gradient : *gradients)
        if (gradient.input == argument)
          sum = arith::AddFOp::create(reverse, loc, sum, gradient.amount);
    sums.push_back(sum);
  }
  finish(reverse, sums);

  OpBuilder forward = begin(forwardRegion);
  values.clear();
  values.map(source.getArguments(), forwardCode().getArguments());
  cloneScalarCode(forward, source, values);
  auto tangentOf = [&](Value value) -> Value {
    if (auto read = value.getDefiningOp<tensor::ExtractOp>())
      value = read.getTensor();
    unsigned number = cast<BlockArgument>(value).getArgNumber();
    return forwardCode().getArgument(source.getNumArguments() + number);
  };
  for (Value argument : source.getArguments())
    forwardCode().addArgument(
        isInput(argument) ? Type(getScoreType(getElementTypeOrSelf(argument))) : Type(forward.getI1Type()), loc);
  auto tangents = emitForwardMode(forward, "the test", source, values, tangentOf);
  if (succeeded(tangents))
    for (auto [tangent, result] : llvm::zip_equal(*tangents, results))
      if (!tangent)
        tangent = constant(forward, result, 0);
  finish(forward, succeeded(tangents) ? ValueRange(*tangents) : ValueRange());
  valid = succeeded(gradients) && succeeded(tangents);
}

std::vector<std::vector<double>> Derivative::run(Block &block, ArrayRef<Point> points) {
  // One lane for each point, and for the two lengths.
  Environment inputs(block.getNumArguments() + 2, std::vector<Scalar>(points.size()));
  for (auto [lane, point] : llvm::enumerate(points))
    for (auto [argument, number] : llvm::enumerate(point))
      inputs[argument][lane] = number;
  auto known = evaluate(block, inputs);
  std::vector<std::vector<double>> results;
  for (Value result : block.back().getOperands()) {
    std::vector<double> &numbers = results.emplace_back();
    for (Scalar number : known.find(result)->second.values)
      numbers.push_back(number.real);
  }
  return results;
}

std::vector<double> Derivative::sumOfResults(Block &block, ArrayRef<Point> points) {
  std::vector<double> sums(points.size(), 0);
  for (auto [seed, numbers] : llvm::zip_equal(seeds, run(block, points)))
    for (auto [sum, number] : llvm::zip_equal(sums, numbers))
      sum += seed * number;
  return sums;
}

std::vector<double> Derivative::reverse(const Point &point) {
  std::vector<double> derivatives;
  for (const std::vector<double> &each : run(reverseCode(), {point}))
    derivatives.push_back(each.front());
  return derivatives;
}

std::vector<double> Derivative::forward(const Point &point) {
  SmallVector<Point> points;
  for (BlockArgument argument : region.getArguments()) {
    Point &inputs = points.emplace_back(point);
    for (BlockArgument other : region.getArguments())
      inputs.push_back(isInput(other) ? Scalar{.real = double(other == argument)} : Scalar{.integer = 0});
  }
  return sumOfResults(forwardCode(), points);
}

std::vector<double> Derivative::differences(const Point &point, double step) {
  SmallVector<Point> points;
  for (BlockArgument argument : region.getArguments())
    for (int64_t steps : {1, -1, 2, -2}) {
      points.push_back(point);
      if (isInput(argument))
        points.back()[argument.getArgNumber()].real += double(steps) * step;
    }
  std::vector<double> values = sumOfResults(region.front(), points), derivatives;
  for (size_t i = 0; i < values.size(); i += 4)
    derivatives.push_back((8 * (values[i] - values[i + 1]) - (values[i + 2] - values[i + 3])) / (12 * step));
  return derivatives;
}

double Derivative::value(const Point &point) { return sumOfResults(region.front(), {point}).front(); }

//===----------------------------------------------------------------------===//
// DerivativesTest
//===----------------------------------------------------------------------===//

DerivativesTest::DerivativesTest() : context(MLIRContext::Threading::DISABLED) {
  context.allowUnregisteredDialects();
  context.loadDialect<AttnDialect, arith::ArithDialect, func::FuncDialect, math::MathDialect, tensor::TensorDialect>();
}

Region &DerivativesTest::parse(const std::string &body) {
  module = parseSourceString<ModuleOp>(
      "func.func @f(%x: f64, %y: f64, %c: i1, %t: tensor<?xf64>) -> f64 {\n" + body + "\n}", &context);
  return (*module->getOps<func::FuncOp>().begin()).getBody();
}

std::vector<double> DerivativesTest::derivatives(const std::string &body, double x, double y, bool c, double t) {
  Derivative derivative(parse(body), {1.0});
  EXPECT_TRUE(derivative.isValid());
  Point point = {{.real = x}, {.real = y}, {.integer = c}, {.real = t}};
  std::vector<double> reverse = derivative.reverse(point), forward = derivative.forward(point);
  for (auto [i, number] : llvm::enumerate(reverse))
    EXPECT_TRUE(number == forward[i] || (std::isnan(number) && std::isnan(forward[i])))
        << "argument " << i << ": " << number << " in reverse mode, " << forward[i] << " in forward mode";
  return reverse;
}

std::string DerivativesTest::errorOf(const std::string &body) {
  std::string message;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) { message += diagnostic.str() + "\n"; });
  EXPECT_FALSE(Derivative(parse(body), {1.0}).isValid());
  return message;
}
