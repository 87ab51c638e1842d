//===- Elementwise.cpp - ONNX elementwise operators -----------------------===//
#include "Onnx.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "saccade/Import/Common/Functions.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;

namespace {

/// Computes one result element from the input elements.
using OnElements = Value (*)(FrontendOp &op, OpBuilder &b, Location loc, ValueRange x);

struct Elementwise {
  unsigned minInputs, maxInputs;
  bool isCondition; // the result is of i1
  OnElements compute;
};

} // namespace

static Value number(OpBuilder &b, Location loc, Value like, double value) {
  return frontend::makeNumber(b, loc, like.getType(), value);
}

/// Applies `RealOp` to a floating-point number.
template <typename RealOp> static Value real(FrontendOp &, OpBuilder &b, Location loc, ValueRange x) {
  return b.createOrFold<RealOp>(loc, x[0]);
}

template <arith::CmpIPredicate predicate> static Value compare(FrontendOp &, OpBuilder &b, Location loc, ValueRange x) {
  return frontend::compare(b, loc, predicate, x[0], x[1]);
}

/// Combines the inputs pairwise from left to right.
template <Value (*combine)(OpBuilder &, Location, Value, Value)>
static Value fold(FrontendOp &, OpBuilder &b, Location loc, ValueRange x) {
  Value result = x[0];
  for (Value each : x.drop_front())
    result = combine(b, loc, result, each);
  return result;
}

template <typename BitOp> static Value bits(FrontendOp &, OpBuilder &b, Location loc, ValueRange x) {
  return b.createOrFold<BitOp>(loc, x[0], x[1]);
}

/// A unary function without attributes.
template <Value (*function)(OpBuilder &, Location, Value)>
static Value plain(FrontendOp &, OpBuilder &b, Location loc, ValueRange x) {
  return function(b, loc, x[0]);
}

static Value swish(FrontendOp &op, OpBuilder &b, Location loc, ValueRange x) {
  return frontend::swish(b, loc, x[0], op.number("alpha", 1));
}

static Value leakyRelu(FrontendOp &op, OpBuilder &b, Location loc, ValueRange x) {
  Value slope = number(b, loc, x[0], op.number("alpha", 0.01F));
  return frontend::whereNegative(b, loc, x[0], frontend::mul(b, loc, x[0], slope));
}

static Value elu(FrontendOp &op, OpBuilder &b, Location loc, ValueRange x) {
  return frontend::elu(b, loc, x[0], op.number("alpha", 1));
}

static Value gelu(FrontendOp &op, OpBuilder &b, Location loc, ValueRange x) {
  return frontend::gelu(b, loc, x[0], /*byTanh=*/op.text("approximate", "none") == "tanh");
}

static Value remainder(FrontendOp &op, OpBuilder &b, Location loc, ValueRange x) {
  return frontend::mod(b, loc, x[0], x[1], /*truncated=*/op.integer("fmod", 0) != 0);
}

static Value where(FrontendOp &, OpBuilder &b, Location loc, ValueRange x) {
  return frontend::select(b, loc, x[0], x[1], x[2]);
}

//===- The operators ------------------------------------------------------===//

static const llvm::StringMap<Elementwise> &getTable() {
  using Predicate = arith::CmpIPredicate;
  constexpr unsigned any = ~0u;
  static const llvm::StringMap<Elementwise> table = {
      {"Abs", {1, 1, false, plain<frontend::absolute>}},
      {"Add", {2, 2, false, fold<frontend::add>}},
      {"And", {2, 2, false, bits<arith::AndIOp>}},
      {"BitwiseAnd", {2, 2, false, bits<arith::AndIOp>}},
      {"BitwiseOr", {2, 2, false, bits<arith::OrIOp>}},
      {"BitwiseXor", {2, 2, false, bits<arith::XOrIOp>}},
      {"Ceil", {1, 1, false, real<math::CeilOp>}},
      {"Cos", {1, 1, false, real<math::CosOp>}},
      {"Div", {2, 2, false, fold<frontend::div>}},
      {"Elu", {1, 1, false, elu}},
      {"Equal", {2, 2, true, compare<Predicate::eq>}},
      {"Erf", {1, 1, false, real<math::ErfOp>}},
      {"Exp", {1, 1, false, real<math::ExpOp>}},
      {"Floor", {1, 1, false, real<math::FloorOp>}},
      {"Gelu", {1, 1, false, gelu}},
      {"Greater", {2, 2, true, compare<Predicate::sgt>}},
      {"GreaterOrEqual", {2, 2, true, compare<Predicate::sge>}},
      {"IsNaN", {1, 1, true, plain<frontend::isNaN>}},
      {"LeakyRelu", {1, 1, false, leakyRelu}},
      {"Less", {2, 2, true, compare<Predicate::slt>}},
      {"LessOrEqual", {2, 2, true, compare<Predicate::sle>}},
      {"Log", {1, 1, false, real<math::LogOp>}},
      {"Max", {1, any, false, fold<frontend::maximum>}},
      {"Min", {1, any, false, fold<frontend::minimum>}},
      {"Mod", {2, 2, false, remainder}},
      {"Mul", {2, 2, false, fold<frontend::mul>}},
      {"Neg", {1, 1, false, plain<frontend::negate>}},
      {"Not", {1, 1, false, plain<frontend::logicalNot>}},
      {"Or", {2, 2, false, bits<arith::OrIOp>}},
      {"Reciprocal", {1, 1, false, plain<frontend::reciprocal>}},
      {"Relu", {1, 1, false, plain<frontend::relu>}},
      {"Round", {1, 1, false, real<math::RoundEvenOp>}},
      {"Sigmoid", {1, 1, false, plain<frontend::sigmoid>}},
      {"Sign", {1, 1, false, plain<frontend::sign>}},
      {"Sin", {1, 1, false, real<math::SinOp>}},
      {"Softplus", {1, 1, false, plain<frontend::softplus>}},
      {"Sqrt", {1, 1, false, real<math::SqrtOp>}},
      {"Sub", {2, 2, false, fold<frontend::sub>}},
      {"Sum", {1, any, false, fold<frontend::add>}},
      {"Swish", {1, 1, false, swish}},
      {"Tanh", {1, 1, false, real<math::TanhOp>}},
      {"Where", {3, 3, false, where}},
      {"Xor", {2, 2, false, bits<arith::XOrIOp>}},
  };
  return table;
}

/// Verifies the element types, which depend on the operator.
static LogicalResult verifyElements(FrontendOp &op, const Elementwise &expected) {
  static const llvm::StringSet<> real = {"Ceil",    "Cos",   "Elu",       "Erf",  "Exp",        "Floor",
                                         "Gelu",    "IsNaN", "LeakyRelu", "Log",  "Reciprocal", "Round",
                                         "Sigmoid", "Sin",   "Softplus",  "Sqrt", "Swish",      "Tanh"};
  static const llvm::StringSet<> logical = {"And", "Or", "Xor", "Not"};
  auto inputs = op.operands();
  StringRef name = op.getName();
  // The condition of Where and the exponent of Pow may differ.
  unsigned first = name == "Where" ? 1 : 0, last = name == "Pow" ? 1 : inputs.size();
  for (unsigned i = first; i < last; ++i)
    if (elementOf(inputs[i]) != elementOf(inputs[first]))
      return op.error() << "input " << i << " has elements of " << elementOf(inputs[i]) << ", input " << first << " of "
                        << elementOf(inputs[first]);
  Type element = elementOf(inputs[0]);
  bool isFlag = element.isInteger(1);
  if (name == "Where" || logical.contains(name))
    return isFlag ? success() : op.error() << "found elements of " << element << ", expected bool";
  if (real.contains(name) && !isa<FloatType>(element))
    return op.error() << "found elements of " << element << ", expected floating point";
  if (isFlag && name != "Equal")
    return op.error() << "found elements of bool, expected numbers";
  if (name.starts_with("Bitwise") && isa<FloatType>(element))
    return op.error() << "found elements of " << element << ", expected integers";
  return success();
}

static LogicalResult translateElementwise(FrontendOp &op, Values &results) {
  const Elementwise &entry = getTable().find(op.getName())->second;
  if (failed(requireOperands(op, entry.minInputs, entry.maxInputs)))
    return failure();
  SmallVector<Value> inputs = op.operands();
  if (llvm::is_contained(inputs, Value()))
    return op.error() << "an input is missing";
  if (failed(verifyElements(op, entry)) || failed(requireBroadcast(op, inputs)))
    return failure();
  Type element = entry.isCondition ? op.builder().getI1Type() : elementOf(inputs[op.getName() == "Where" ? 1 : 0]);
  results.push_back(frontend::elementwise(op.builder(), inputs, element, [&](OpBuilder &b, Location loc, ValueRange x) {
    return entry.compute(op, b, loc, x);
  }));
  return success();
}

/// The value of a splat constant.
static std::optional<double> constantNumber(Value tensor) {
  DenseElementsAttr constant;
  if (!matchPattern(tensor, m_Constant(&constant)) || !constant.isSplat())
    return std::nullopt;
  if (isa<IntegerType>(constant.getElementType())) {
    int64_t value = constant.getSplatValue<APInt>().getSExtValue();
    return llvm::isInt<32>(value) ? std::optional<double>(value) : std::nullopt;
  }
  APFloat value = constant.getSplatValue<APFloat>();
  bool loses;
  value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &loses);
  return value.convertToDouble();
}

static LogicalResult translatePow(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 2)) || failed(requireBroadcast(op, op.operands())))
    return failure();
  std::optional<double> exponent = constantNumber(op.operand(1));
  auto compute = [&](OpBuilder &b, Location loc, ValueRange x) {
    return frontend::power(b, loc, x[0], x[1], exponent);
  };
  results.push_back(frontend::elementwise(op.builder(), op.operands(), elementOf(op.operand(0)), compute));
  return success();
}

static LogicalResult translateCast(FrontendOp &op, Values &results) {
  bool isLike = op.getName() == "CastLike";
  if (failed(requireOperands(op, isLike ? 2 : 1, isLike ? 2 : 1)))
    return failure();
  int64_t to = op.integer("to", 0);
  Type element = isLike ? elementOf(op.operand(1)) : elementType(op.builder().getContext(), to);
  if (!element)
    return op.error() << "a cast to ONNX's data type " << to << " is not supported";
  results.push_back(frontend::castElements(op.builder(), op.operand(0), element));
  return success();
}

/// A missing bound has no effect.
static LogicalResult translateClip(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 3)))
    return failure();
  Type element = elementOf(op.operand(0));
  SmallVector<Value> inputs = {op.operand(0)};
  for (unsigned i : {1u, 2u}) {
    Value bound = op.operand(i);
    auto attribute = op.getOperation()->getAttrOfType<FloatAttr>(i == 1 ? "min" : "max");
    if (!bound && attribute)
      bound = frontend::splat(op.builder(), {}, element, attribute.getValueAsDouble());
    if (!bound)
      bound = frontend::fromElements(op.builder(), RankedTensorType::get({}, element),
                                     {frontend::extremeAttr(element, /*largest=*/i == 2)});
    if (elementOf(bound) != element || rankOf(bound) != 0)
      return op.error() << "bound is " << bound.getType() << ", expected a scalar " << element;
    inputs.push_back(bound);
  }
  results.push_back(frontend::elementwise(op.builder(), inputs, element, [](OpBuilder &b, Location loc, ValueRange x) {
    return frontend::minimum(b, loc, x[2], frontend::maximum(b, loc, x[1], x[0]));
  }));
  return success();
}

/// Identity, and Dropout in inference mode.
static LogicalResult translateIdentity(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 3)))
    return failure();
  if (Value training = op.operand(2)) {
    std::optional<SmallVector<int64_t>> mode = frontend::constantIntegers(training);
    if (!mode || mode->size() != 1 || mode->front() != 0)
      return op.error() << "dropout in training is not supported";
  }
  results.push_back(op.operand(0));
  // The second result of Dropout is the mask of kept elements.
  if (op.isUsed(1))
    results.push_back(
        frontend::splat(op.builder(), frontend::extentsOf(op.builder(), op.operand(0)), op.builder().getI1Type(), 1));
  return success();
}

void onnx::addElementwise(frontend::Frontend &frontend) {
  for (const auto &entry : getTable())
    frontend.translators[entry.getKey()] = translateElementwise;
  frontend.translators["Cast"] = frontend.translators["CastLike"] = translateCast;
  frontend.translators["Clip"] = translateClip;
  frontend.translators["Identity"] = frontend.translators["Dropout"] = translateIdentity;
  frontend.translators["Pow"] = translatePow;
}
