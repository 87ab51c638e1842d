//===- Elementwise.cpp - PyTorch elementwise operators --------------------===//
//
// Operands are promoted by PyTorch's rules. 16-bit floats are computed in f32 and rounded once.
//
//===----------------------------------------------------------------------===//
#include "Torch.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "saccade/Import/Common/Functions.h"
#include "saccade/Import/Common/Reductions.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;

namespace {

/// Computes one result element from the operand elements.
using OnElements = Value (*)(Arguments &a, OpBuilder &b, Location loc, ValueRange x);

struct Elementwise {
  /// The type of the computation and of the result.
  enum Kind {
    Same,      // the promoted type
    Real,      // the promoted type, f32 for integers
    Condition, // computed in the promoted type; the result is bool
    Logical,   // operands and result are bool
    Bits       // integers and bool
  } kind;
  SmallVector<StringRef> operands; // argument names, in the order of elements
  OnElements compute;
  StringRef factor = ""; // optional last operand that does not take part in type promotion
  /// Whether Python scalars and 0-D tensors combined with 16-bit tensors keep their precision.
  bool keepsNumbers = false;
};

} // namespace

static Value number(OpBuilder &b, Location loc, Value like, double value) {
  return frontend::makeNumber(b, loc, like.getType(), value);
}

template <typename RealOp> static Value real(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return b.createOrFold<RealOp>(loc, x[0]);
}
template <Value (*function)(OpBuilder &, Location, Value)>
static Value plain(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return function(b, loc, x[0]);
}
template <Value (*function)(OpBuilder &, Location, Value, Value)>
static Value pair(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return function(b, loc, x[0], x[1]);
}
template <arith::CmpIPredicate predicate> static Value compare(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  // Compare bool unsigned: true is greater than false.
  if (!x[0].getType().isInteger(1))
    return frontend::compare(b, loc, predicate, x[0], x[1]);
  Type wide = b.getI8Type();
  return frontend::compare(b, loc, predicate, frontend::convert(b, loc, x[0], wide),
                           frontend::convert(b, loc, x[1], wide));
}
template <typename BitOp> static Value bits(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return b.createOrFold<BitOp>(loc, x[0], x[1]);
}

/// Rounds floating-point numbers; integers are unchanged.
template <typename RealOp> static Value rounded(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return isa<FloatType>(x[0].getType()) ? b.createOrFold<RealOp>(loc, x[0]) : x[0];
}

static Value logicalAdd(OpBuilder &b, Location loc, Value x, Value y) {
  return x.getType().isInteger(1) ? b.createOrFold<arith::OrIOp>(loc, x, y) : frontend::add(b, loc, x, y);
}

/// x · alpha, where alpha is operand `at`, or x if it is missing.
static Value scaleByAlpha(OpBuilder &b, Location loc, Value x, ValueRange operands, size_t at) {
  return operands.size() == at || matchPattern(operands[at], m_OneFloat()) ? x : frontend::mul(b, loc, x, operands[at]);
}

static Value sum(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return logicalAdd(b, loc, x[0], scaleByAlpha(b, loc, x[1], x, 2));
}
static Value difference(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return frontend::sub(b, loc, x[0], scaleByAlpha(b, loc, x[1], x, 2));
}
static Value reversedDifference(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return frontend::sub(b, loc, x[1], scaleByAlpha(b, loc, x[0], x, 2));
}

/// Floor division of floating-point numbers with Python's algorithm: the exact remainder is subtracted first, so 1 //
/// 0.1 is 9 although 1 / 0.1 rounds to 10.
static Value floorOfReals(OpBuilder &b, Location loc, Value x, Value y) {
  Type type = x.getType();
  Value zero = number(b, loc, x, 0), one = number(b, loc, x, 1), exact = frontend::div(b, loc, x, y);
  Value rest = frontend::mod(b, loc, x, y, /*truncated=*/true);
  Value even = frontend::div(b, loc, frontend::sub(b, loc, x, rest), y);
  auto is = [&](arith::CmpIPredicate predicate, Value lhs, Value rhs) {
    return frontend::compare(b, loc, predicate, lhs, rhs);
  };
  using Predicate = arith::CmpIPredicate;
  Value differs = b.createOrFold<arith::XOrIOp>(loc, is(Predicate::slt, y, zero), is(Predicate::slt, rest, zero));
  differs = b.createOrFold<arith::AndIOp>(loc, differs, is(Predicate::ne, rest, zero));
  even = frontend::select(b, loc, differs, frontend::sub(b, loc, even, one), even);
  Value low = b.createOrFold<math::FloorOp>(loc, even);
  Value isNext = is(Predicate::sgt, frontend::sub(b, loc, even, low), number(b, loc, x, 0.5));
  low = frontend::select(b, loc, isNext, frontend::add(b, loc, low, one), low);
  // A zero result has the sign of the quotient; division by 0 gives the quotient itself.
  Value none = b.createOrFold<math::CopySignOp>(loc, type, ValueRange{zero, exact});
  low = frontend::select(b, loc, is(Predicate::eq, even, zero), none, low);
  return frontend::select(b, loc, is(Predicate::eq, y, zero), exact, low);
}

/// Floor division.
static Value floorQuotient(OpBuilder &b, Location loc, Value x, Value y) {
  if (isa<FloatType>(x.getType()))
    return floorOfReals(b, loc, x, y);
  // Python's remainder has the sign of the divisor; without it the division is exact.
  return frontend::div(b, loc, frontend::sub(b, loc, x, frontend::mod(b, loc, x, y, /*truncated=*/false)), y);
}
static Value floorDivide(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return floorQuotient(b, loc, x[0], x[1]);
}
static Value quotient(Arguments &a, OpBuilder &b, Location loc, ValueRange x) {
  StringRef mode = a.text("rounding_mode", "");
  if (mode == "floor")
    return floorQuotient(b, loc, x[0], x[1]);
  Value exact = frontend::div(b, loc, x[0], x[1]);
  return mode == "trunc" && isa<FloatType>(x[0].getType()) ? b.createOrFold<math::TruncOp>(loc, exact) : exact;
}
template <bool truncated> static Value remainder(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return frontend::mod(b, loc, x[0], x[1], truncated);
}
static Value power(Arguments &a, OpBuilder &b, Location loc, ValueRange x) {
  std::optional<double> known;
  if (a.attribute("exponent"))
    known = a.number("exponent", 1);
  return frontend::power(b, loc, x[0], x[1], known);
}

static Value gelu(Arguments &a, OpBuilder &b, Location loc, ValueRange x) {
  return frontend::gelu(b, loc, x[0], /*byTanh=*/a.text("approximate", "none") == "tanh");
}
static Value silu(Arguments &, OpBuilder &b, Location loc, ValueRange x) { return frontend::swish(b, loc, x[0], 1); }
static Value elu(Arguments &a, OpBuilder &b, Location loc, ValueRange x) {
  double scale = a.number("scale", 1), inner = a.number("input_scale", 1);
  auto times = [&](double factor, Value value) {
    return factor == 1 ? value : frontend::mul(b, loc, value, number(b, loc, value, factor));
  };
  Value low = times(a.number("alpha", 1) * scale, b.createOrFold<math::ExpM1Op>(loc, times(inner, x[0])));
  Value isNegative = frontend::compare(b, loc, arith::CmpIPredicate::slt, x[0], number(b, loc, x[0], 0));
  return frontend::select(b, loc, isNegative, low, times(scale, x[0]));
}
static Value leakyRelu(Arguments &a, OpBuilder &b, Location loc, ValueRange x) {
  return frontend::whereNegative(b, loc, x[0],
                                 frontend::mul(b, loc, x[0], number(b, loc, x[0], a.number("negative_slope", 0.01))));
}
static Value isInfinite(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  Value infinity = arith::ConstantOp::create(b, loc, frontend::extremeAttr(x[0].getType(), /*largest=*/true));
  return frontend::compare(b, loc, arith::CmpIPredicate::eq, frontend::absolute(b, loc, x[0]), infinity);
}
static Value reciprocalRoot(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return b.createOrFold<math::RsqrtOp>(loc, x[0]);
}
static Value multiplyAdd(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return frontend::add(b, loc, x[0], scaleByAlpha(b, loc, frontend::mul(b, loc, x[1], x[2]), x, 3));
}
/// The sign; 0 for 0 and NaN.
static Value sign(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  Value sign = frontend::sign(b, loc, x[0]);
  return isa<FloatType>(sign.getType())
             ? frontend::select(b, loc, frontend::isNaN(b, loc, x[0]), number(b, loc, sign, 0), sign)
             : sign;
}
/// Rounds to `decimals` digits after the decimal point; a negative number rounds to powers of ten.
static Value roundToDecimals(Arguments &a, OpBuilder &b, Location loc, ValueRange x) {
  int64_t decimals = a.integer("decimals", 0);
  if (!isa<FloatType>(x[0].getType()) || decimals == 0)
    return rounded<math::RoundEvenOp>(a, b, loc, x);
  Value power = number(b, loc, x[0], std::pow(10.0, std::abs(decimals)));
  auto scale = [&](Value value, bool isLarger) {
    return isLarger ? frontend::mul(b, loc, value, power) : frontend::div(b, loc, value, power);
  };
  Value whole = b.createOrFold<math::RoundEvenOp>(loc, scale(x[0], decimals > 0));
  return scale(whole, decimals < 0);
}

//===- The operators ------------------------------------------------------===//

static const llvm::StringMap<Elementwise> &getTable() {
  using Predicate = arith::CmpIPredicate;
  using E = Elementwise;
  static const SmallVector<StringRef> one = {"self"}, two = {"self", "other"};
  static const llvm::StringMap<Elementwise> table = {
      {"__and__", {E::Bits, two, bits<arith::AndIOp>}},
      {"__or__", {E::Bits, two, bits<arith::OrIOp>}},
      {"__xor__", {E::Bits, two, bits<arith::XOrIOp>}},
      {"abs", {E::Same, one, plain<frontend::absolute>}},
      {"add", {E::Same, two, sum, "alpha"}},
      {"addcmul", {E::Same, {"self", "tensor1", "tensor2"}, multiplyAdd, "value", /*keepsNumbers=*/true}},
      {"bitwise_and", {E::Bits, two, bits<arith::AndIOp>}},
      {"bitwise_not",
       {E::Bits, one,
        [](Arguments &, OpBuilder &b, Location loc, ValueRange x) {
          return b.createOrFold<arith::XOrIOp>(loc, x[0], number(b, loc, x[0], -1));
        }}},
      {"bitwise_or", {E::Bits, two, bits<arith::OrIOp>}},
      {"bitwise_xor", {E::Bits, two, bits<arith::XOrIOp>}},
      {"ceil", {E::Same, one, rounded<math::CeilOp>}},
      {"cos", {E::Real, one, real<math::CosOp>}},
      {"div", {E::Real, two, quotient, "", /*keepsNumbers=*/true}},
      {"elu", {E::Same, one, elu}},
      {"eq", {E::Condition, two, compare<Predicate::eq>}},
      {"erf", {E::Real, one, real<math::ErfOp>}},
      {"exp", {E::Real, one, real<math::ExpOp>}},
      {"exp2", {E::Real, one, real<math::Exp2Op>}},
      {"expm1", {E::Real, one, real<math::ExpM1Op>}},
      {"floor", {E::Same, one, rounded<math::FloorOp>}},
      {"floor_divide", {E::Same, two, floorDivide, "", /*keepsNumbers=*/true}},
      {"fmod", {E::Same, two, remainder<true>}},
      {"ge", {E::Condition, two, compare<Predicate::sge>}},
      {"gelu", {E::Same, one, gelu}},
      {"gt", {E::Condition, two, compare<Predicate::sgt>}},
      {"isinf", {E::Condition, one, isInfinite}},
      {"isnan", {E::Condition, one, plain<frontend::isNaN>}},
      {"le", {E::Condition, two, compare<Predicate::sle>}},
      {"leaky_relu", {E::Same, one, leakyRelu}},
      {"log", {E::Real, one, real<math::LogOp>}},
      {"log1p", {E::Real, one, real<math::Log1pOp>}},
      {"log2", {E::Real, one, real<math::Log2Op>}},
      {"logical_and", {E::Logical, two, bits<arith::AndIOp>}},
      {"logical_not", {E::Logical, one, plain<frontend::logicalNot>}},
      {"logical_or", {E::Logical, two, bits<arith::OrIOp>}},
      {"logical_xor", {E::Logical, two, bits<arith::XOrIOp>}},
      {"lt", {E::Condition, two, compare<Predicate::slt>}},
      {"maximum", {E::Same, two, pair<frontend::maximum>}},
      {"minimum", {E::Same, two, pair<frontend::minimum>}},
      {"mul", {E::Same, two, pair<frontend::mul>, "", /*keepsNumbers=*/true}},
      {"ne", {E::Condition, two, compare<Predicate::ne>}},
      {"neg", {E::Same, one, plain<frontend::negate>}},
      {"pow", {E::Same, {"self", "exponent"}, power}},
      {"reciprocal", {E::Real, one, plain<frontend::reciprocal>}},
      {"relu", {E::Same, one, plain<frontend::relu>}},
      {"remainder", {E::Same, two, remainder<false>}},
      {"round", {E::Same, one, roundToDecimals}},
      {"rsqrt", {E::Real, one, reciprocalRoot}},
      {"rsub", {E::Same, two, reversedDifference, "alpha"}},
      {"sigmoid", {E::Real, one, plain<frontend::sigmoid>}},
      {"sign", {E::Same, one, sign}},
      {"silu", {E::Real, one, silu}},
      {"sin", {E::Real, one, real<math::SinOp>}},
      {"sqrt", {E::Real, one, real<math::SqrtOp>}},
      {"square", {E::Same, one, plain<frontend::square>}},
      {"sub", {E::Same, two, difference, "alpha"}},
      {"tanh", {E::Real, one, real<math::TanhOp>}},
      {"trunc", {E::Same, one, rounded<math::TruncOp>}},
  };
  return table;
}

/// Applies `compute` to operands promoted to `type` (computed in f32 if 16-bit) and converts the result to `element`.
/// With `keepsNumbers`, Python scalars and 0-D tensors are not rounded to 16 bits first.
static FailureOr<Value> applyPromoted(Arguments &a, ArrayRef<TensorOrScalar> operands, Type type, Type element,
                                      OnElements compute, bool keepsNumbers = false) {
  SmallVector<Value> tensors;
  for (TensorOrScalar each : operands)
    if (auto tensor = dyn_cast<Value>(each))
      tensors.push_back(tensor);
  if (failed(frontend::requireBroadcast(a.op, tensors)))
    return failure();
  Type wide = frontend::getAccumulatorType(type);
  return frontend::elementwise(a.op.builder(), tensors, element, [&](OpBuilder &b, Location loc, ValueRange given) {
    SmallVector<Value> x;
    for (TensorOrScalar each : operands) {
      auto tensor = dyn_cast<Value>(each);
      Type first = keepsNumbers && !(tensor && rankOf(tensor) > 0) ? wide : type;
      Value own;
      if (tensor) {
        own = frontend::convert(b, loc, given.front(), first);
        given = given.drop_front();
      } else {
        own = arith::ConstantOp::create(b, loc, elementAttr(cast<Attribute>(each), first));
      }
      x.push_back(frontend::convert(b, loc, own, wide));
    }
    return frontend::convert(b, loc, compute(a, b, loc, x), element);
  });
}

/// Rejects element types for which PyTorch does not implement the operator.
static LogicalResult requireKind(Arguments &a, ArrayRef<TensorOrScalar> operands, Type type) {
  static const llvm::StringSet<> ofReals = {"elu", "gelu", "leaky_relu", "silu"};
  static const llvm::StringSet<> ofNumbers = {"abs", "addcmul", "ceil",      "floor", "floor_divide", "fmod", "neg",
                                              "pow", "relu",    "remainder", "round", "rsub",         "sub",  "trunc"};
  StringRef name = a.op.getName().split('.').second;
  auto tensor = dyn_cast<Value>(operands.front());
  bool isBool = type.isInteger(1);
  // Subtraction rejects bool operands even if they would be promoted.
  if (name == "sub" || name == "rsub")
    isBool = llvm::any_of(operands, [](TensorOrScalar each) {
      auto own = dyn_cast<Value>(each);
      return own && elementOf(own).isInteger(1);
    });
  if (isBool && ofNumbers.contains(name))
    return a.op.error() << "found elements of i1, expected numbers";
  if (tensor && !isa<FloatType>(elementOf(tensor)) && ofReals.contains(name))
    return a.op.error() << "found elements of " << elementOf(tensor) << ", expected floating point";
  return success();
}

static LogicalResult translateElementwise(Arguments &a, Values &results) {
  const Elementwise &entry = getTable().find(a.op.getName().split('.').second)->second;
  SmallVector<TensorOrScalar> operands;
  for (StringRef name : entry.operands) {
    operands.push_back(tensorOrScalar(a, name));
    if (operands.back().isNull())
      return a.op.error() << "the argument '" << name << "' is missing";
  }
  Builder b(a.op.getOperation()->getContext());
  Type type = promote(b.getContext(), operands);
  bool isRounded = !a.text("rounding_mode", "").empty();
  if (entry.kind == Elementwise::Logical)
    type = b.getI1Type();
  else if (entry.kind == Elementwise::Real && !isa<FloatType>(type) && !isRounded)
    type = b.getF32Type();
  else if (a.op.getName() == "aten.square" && type.isInteger(1))
    type = b.getI64Type();
  if (entry.kind == Elementwise::Bits && isa<FloatType>(type))
    return a.op.error() << "found elements of " << type << ", expected integers or bool";
  if (failed(requireKind(a, operands, type)))
    return failure();
  if (!entry.factor.empty() && a.has(entry.factor))
    operands.push_back(tensorOrScalar(a, entry.factor));
  bool isCondition = entry.kind == Elementwise::Condition;
  if (StringRef name = a.op.getName(); isCondition && name.contains("is") && !isa<FloatType>(type))
    type = b.getF32Type();
  return append(applyPromoted(a, operands, type, isCondition ? b.getI1Type() : type, entry.compute, entry.keepsNumbers),
                results);
}

/// A missing bound has no effect.
static LogicalResult translateClamp(Arguments &a, Values &results) {
  bool isHard = a.op.getName() == "aten.hardtanh";
  TensorOrScalar low = tensorOrScalar(a, isHard ? "min_val" : "min"),
                 high = tensorOrScalar(a, isHard ? "max_val" : "max");
  OpBuilder &builder = a.op.builder();
  if (isHard && low.isNull())
    low = Attribute(builder.getF64FloatAttr(-1));
  if (isHard && high.isNull())
    high = Attribute(builder.getF64FloatAttr(1));
  SmallVector<TensorOrScalar> operands = {tensorOrScalar(a, "self"), low, high};
  if (!isa_and_present<Value>(operands[0]) || (operands[1].isNull() && operands[2].isNull()))
    return a.op.error() << "expected a tensor and at least one bound";
  bool hasLow = !operands[1].isNull(), hasHigh = !operands[2].isNull();
  // hardtanh converts its bounds to the type of the tensor.
  Type type = promote(a.op.builder().getContext(), isHard ? ArrayRef(operands).take_front() : ArrayRef(operands));
  llvm::erase_if(operands, [](TensorOrScalar each) { return each.isNull(); });
  OnElements both[] = {
      [](Arguments &, OpBuilder &b, Location loc, ValueRange x) { return frontend::minimum(b, loc, x[0], x[1]); },
      [](Arguments &, OpBuilder &b, Location loc, ValueRange x) { return frontend::maximum(b, loc, x[0], x[1]); },
      [](Arguments &, OpBuilder &b, Location loc, ValueRange x) {
        return frontend::minimum(b, loc, frontend::maximum(b, loc, x[0], x[1]), x[2]);
      }};
  return append(applyPromoted(a, operands, type, type, both[hasLow ? (hasHigh ? 2 : 1) : 0]), results);
}

FailureOr<Value> torch::extremeOf(Arguments &a, bool isLargest) {
  SmallVector<TensorOrScalar> operands = {tensorOrScalar(a, "self"), tensorOrScalar(a, "other")};
  if (operands[0].isNull() || operands[1].isNull())
    return a.op.error() << "expected two tensors";
  Type type = promote(a.op.builder().getContext(), operands);
  return applyPromoted(a, operands, type, type, isLargest ? pair<frontend::maximum> : pair<frontend::minimum>);
}

/// condition ? x : y, each a tensor or a scalar.
static FailureOr<Value> choose(Arguments &a, Value condition, TensorOrScalar x, TensorOrScalar y, Type type) {
  if (!elementOf(condition).isInteger(1))
    return a.op.error() << "the condition is " << condition.getType() << ", expected bool";
  SmallVector<Value> tensors = {condition};
  for (TensorOrScalar each : {x, y})
    if (auto tensor = dyn_cast<Value>(each))
      tensors.push_back(tensor);
  if (failed(frontend::requireBroadcast(a.op, tensors)))
    return failure();
  return frontend::elementwise(a.op.builder(), tensors, type, [&](OpBuilder &b, Location loc, ValueRange given) {
    ValueRange rest = given.drop_front();
    auto element = [&](TensorOrScalar each) -> Value {
      if (!isa<Value>(each))
        return arith::ConstantOp::create(b, loc, elementAttr(cast<Attribute>(each), type));
      Value own = frontend::convert(b, loc, rest.front(), type);
      rest = rest.drop_front();
      return own;
    };
    Value chosen = element(x), defaultValue = element(y);
    return frontend::select(b, loc, given[0], chosen, defaultValue);
  });
}

static LogicalResult translateWhere(Arguments &a, Values &results) {
  FailureOr<Value> condition = a.required("condition");
  TensorOrScalar x = tensorOrScalar(a, "self"), y = tensorOrScalar(a, "other");
  if (failed(condition))
    return failure();
  if (x.isNull() || y.isNull())
    return a.op.error() << "where with one argument is not supported: the result shape depends on the data";
  return append(choose(a, *condition, x, y, promote(a.op.builder().getContext(), {x, y})), results);
}

static LogicalResult translateMaskedFill(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self"), mask = a.required("mask");
  TensorOrScalar value = tensorOrScalar(a, "value");
  if (failed(tensor) || failed(mask) || value.isNull())
    return a.op.error() << "expected a tensor, a mask and a value";
  return append(choose(a, *mask, value, *tensor, elementOf(*tensor)), results);
}

void torch::addElementwise(frontend::Frontend &frontend) {
  for (const auto &entry : getTable())
    add(frontend, ("aten." + entry.getKey()).str(), translateElementwise);
  add(frontend, "aten.clamp", translateClamp);
  add(frontend, "aten.clamp_max", translateClamp);
  add(frontend, "aten.clamp_min", translateClamp);
  add(frontend, "aten.hardtanh", translateClamp);
  add(frontend, "aten.masked_fill", translateMaskedFill);
  add(frontend, "aten.where", translateWhere);
}
