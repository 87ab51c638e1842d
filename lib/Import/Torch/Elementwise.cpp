//===- Elementwise.cpp - PyTorch's operators on elements ----------------------===//
//
// Operands are promoted to one type, as PyTorch does; numbers of 16 bits are computed with in f32 and rounded once.
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

/// What an operator makes of the elements of its operands.
using OnElements = Value (*)(Arguments &a, OpBuilder &b, Location loc, ValueRange x);

struct Elementwise {
  /// What the operator computes in and gives.
  enum Kind {
    Same,      // the promoted type
    Real,      // the promoted type, f32 for integers
    Condition, // computed in the promoted type, the result is of bool
    Logical,   // of bool, and so the operands
    Bits       // integers and bool
  } kind;
  SmallVector<StringRef> operands; // names of arguments, in the order of elements
  OnElements compute;
  StringRef factor = ""; // the argument that is the last operand where it is given, and counts for no type
  /// Whether numbers beside tensors of 16 bits are taken as they are, not as ones of 16 bits.
  bool keepsNumbers = false;
};

} // namespace

static Value number(OpBuilder &b, Location loc, Value like, double value) {
  return door::makeNumber(b, loc, like.getType(), value);
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
  // Of conditions, true is more than false.
  if (!x[0].getType().isInteger(1))
    return door::compare(b, loc, predicate, x[0], x[1]);
  Type wide = b.getI8Type();
  return door::compare(b, loc, predicate, door::convert(b, loc, x[0], wide), door::convert(b, loc, x[1], wide));
}
template <typename BitOp> static Value bits(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return b.createOrFold<BitOp>(loc, x[0], x[1]);
}

/// Numbers that stay as they are where they are integers.
template <typename RealOp> static Value rounded(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return isa<FloatType>(x[0].getType()) ? b.createOrFold<RealOp>(loc, x[0]) : x[0];
}

static Value logicalAdd(OpBuilder &b, Location loc, Value x, Value y) {
  return x.getType().isInteger(1) ? b.createOrFold<arith::OrIOp>(loc, x, y) : door::add(b, loc, x, y);
}

/// x · alpha, the operand number `at`, which is 1 unless it is given.
static Value timesFactor(OpBuilder &b, Location loc, Value x, ValueRange operands, size_t at) {
  return operands.size() == at || matchPattern(operands[at], m_OneFloat()) ? x : door::mul(b, loc, x, operands[at]);
}

static Value sum(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return logicalAdd(b, loc, x[0], timesFactor(b, loc, x[1], x, 2));
}
static Value difference(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return door::sub(b, loc, x[0], timesFactor(b, loc, x[1], x, 2));
}
static Value reversedDifference(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return door::sub(b, loc, x[1], timesFactor(b, loc, x[0], x, 2));
}

/// The quotient of reals rounded down, in the steps of Python: what is left by the exact remainder divides nearly
/// evenly, so 1 // 0.1 is 9 though 1 / 0.1 is 10.
static Value floorOfReals(OpBuilder &b, Location loc, Value x, Value y) {
  Type type = x.getType();
  Value zero = number(b, loc, x, 0), one = number(b, loc, x, 1), exact = door::div(b, loc, x, y);
  Value rest = door::mod(b, loc, x, y, /*truncated=*/true);
  Value even = door::div(b, loc, door::sub(b, loc, x, rest), y);
  auto is = [&](arith::CmpIPredicate predicate, Value left, Value right) {
    return door::compare(b, loc, predicate, left, right);
  };
  using Predicate = arith::CmpIPredicate;
  Value differs = b.createOrFold<arith::XOrIOp>(loc, is(Predicate::slt, y, zero), is(Predicate::slt, rest, zero));
  differs = b.createOrFold<arith::AndIOp>(loc, differs, is(Predicate::ne, rest, zero));
  even = door::select(b, loc, differs, door::sub(b, loc, even, one), even);
  Value low = b.createOrFold<math::FloorOp>(loc, even);
  Value isNext = is(Predicate::sgt, door::sub(b, loc, even, low), number(b, loc, x, 0.5));
  low = door::select(b, loc, isNext, door::add(b, loc, low, one), low);
  // 0 keeps the sign of the quotient; divided by 0, that is the result.
  Value none = b.createOrFold<math::CopySignOp>(loc, type, ValueRange{zero, exact});
  low = door::select(b, loc, is(Predicate::eq, even, zero), none, low);
  return door::select(b, loc, is(Predicate::eq, y, zero), exact, low);
}

/// The quotient rounded down, of integers, too.
static Value floorQuotient(OpBuilder &b, Location loc, Value x, Value y) {
  if (isa<FloatType>(x.getType()))
    return floorOfReals(b, loc, x, y);
  // Python's remainder has the divisor's sign, and what is left without it divides evenly.
  return door::div(b, loc, door::sub(b, loc, x, door::mod(b, loc, x, y, /*truncated=*/false)), y);
}
static Value floorDivide(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return floorQuotient(b, loc, x[0], x[1]);
}
static Value quotient(Arguments &a, OpBuilder &b, Location loc, ValueRange x) {
  StringRef mode = a.text("rounding_mode", "");
  if (mode == "floor")
    return floorQuotient(b, loc, x[0], x[1]);
  Value exact = door::div(b, loc, x[0], x[1]);
  return mode == "trunc" && isa<FloatType>(x[0].getType()) ? b.createOrFold<math::TruncOp>(loc, exact) : exact;
}
template <bool truncated> static Value remainder(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return door::mod(b, loc, x[0], x[1], truncated);
}
static Value power(Arguments &a, OpBuilder &b, Location loc, ValueRange x) {
  std::optional<double> known;
  if (a.attribute("exponent"))
    known = a.number("exponent", 1);
  return door::power(b, loc, x[0], x[1], known);
}

static Value gelu(Arguments &a, OpBuilder &b, Location loc, ValueRange x) {
  return door::gelu(b, loc, x[0], /*byTanh=*/a.text("approximate", "none") == "tanh");
}
static Value silu(Arguments &, OpBuilder &b, Location loc, ValueRange x) { return door::swish(b, loc, x[0], 1); }
static Value elu(Arguments &a, OpBuilder &b, Location loc, ValueRange x) {
  double scale = a.number("scale", 1), inner = a.number("input_scale", 1);
  auto times = [&](double factor, Value value) {
    return factor == 1 ? value : door::mul(b, loc, value, number(b, loc, value, factor));
  };
  Value low = times(a.number("alpha", 1) * scale, b.createOrFold<math::ExpM1Op>(loc, times(inner, x[0])));
  Value isNegative = door::compare(b, loc, arith::CmpIPredicate::slt, x[0], number(b, loc, x[0], 0));
  return door::select(b, loc, isNegative, low, times(scale, x[0]));
}
static Value leakyRelu(Arguments &a, OpBuilder &b, Location loc, ValueRange x) {
  return door::whereNegative(b, loc, x[0],
                             door::mul(b, loc, x[0], number(b, loc, x[0], a.number("negative_slope", 0.01))));
}
static Value isInfinite(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  Value infinity = arith::ConstantOp::create(b, loc, door::extremeAttr(x[0].getType(), /*largest=*/true));
  return door::compare(b, loc, arith::CmpIPredicate::eq, door::absolute(b, loc, x[0]), infinity);
}
static Value reciprocalRoot(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return b.createOrFold<math::RsqrtOp>(loc, x[0]);
}
static Value productAndSum(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  return door::add(b, loc, x[0], timesFactor(b, loc, door::mul(b, loc, x[1], x[2]), x, 3));
}
/// 1 and −1 by the sign, 0 for 0 and for what has none: NaN.
static Value sign(Arguments &, OpBuilder &b, Location loc, ValueRange x) {
  Value sign = door::sign(b, loc, x[0]);
  return isa<FloatType>(sign.getType()) ? door::select(b, loc, door::isNaN(b, loc, x[0]), number(b, loc, sign, 0), sign)
                                        : sign;
}
/// Rounded to that many decimals; a negative number counts from the point to the left.
static Value roundToDecimals(Arguments &a, OpBuilder &b, Location loc, ValueRange x) {
  int64_t decimals = a.integer("decimals", 0);
  if (!isa<FloatType>(x[0].getType()) || decimals == 0)
    return rounded<math::RoundEvenOp>(a, b, loc, x);
  Value power = number(b, loc, x[0], std::pow(10.0, std::abs(decimals)));
  auto scale = [&](Value value, bool isLarger) {
    return isLarger ? door::mul(b, loc, value, power) : door::div(b, loc, value, power);
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
      {"abs", {E::Same, one, plain<door::absolute>}},
      {"add", {E::Same, two, sum, "alpha"}},
      {"addcmul", {E::Same, {"self", "tensor1", "tensor2"}, productAndSum, "value", /*keepsNumbers=*/true}},
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
      {"isnan", {E::Condition, one, plain<door::isNaN>}},
      {"le", {E::Condition, two, compare<Predicate::sle>}},
      {"leaky_relu", {E::Same, one, leakyRelu}},
      {"log", {E::Real, one, real<math::LogOp>}},
      {"log1p", {E::Real, one, real<math::Log1pOp>}},
      {"log2", {E::Real, one, real<math::Log2Op>}},
      {"logical_and", {E::Logical, two, bits<arith::AndIOp>}},
      {"logical_not", {E::Logical, one, plain<door::logicalNot>}},
      {"logical_or", {E::Logical, two, bits<arith::OrIOp>}},
      {"logical_xor", {E::Logical, two, bits<arith::XOrIOp>}},
      {"lt", {E::Condition, two, compare<Predicate::slt>}},
      {"maximum", {E::Same, two, pair<door::maximum>}},
      {"minimum", {E::Same, two, pair<door::minimum>}},
      {"mul", {E::Same, two, pair<door::mul>, "", /*keepsNumbers=*/true}},
      {"ne", {E::Condition, two, compare<Predicate::ne>}},
      {"neg", {E::Same, one, plain<door::negate>}},
      {"pow", {E::Same, {"self", "exponent"}, power}},
      {"reciprocal", {E::Real, one, plain<door::reciprocal>}},
      {"relu", {E::Same, one, plain<door::relu>}},
      {"remainder", {E::Same, two, remainder<false>}},
      {"round", {E::Same, one, roundToDecimals}},
      {"rsqrt", {E::Real, one, reciprocalRoot}},
      {"rsub", {E::Same, two, reversedDifference, "alpha"}},
      {"sigmoid", {E::Real, one, plain<door::sigmoid>}},
      {"sign", {E::Same, one, sign}},
      {"silu", {E::Real, one, silu}},
      {"sin", {E::Real, one, real<math::SinOp>}},
      {"sqrt", {E::Real, one, real<math::SqrtOp>}},
      {"square", {E::Same, one, plain<door::square>}},
      {"sub", {E::Same, two, difference, "alpha"}},
      {"tanh", {E::Real, one, real<math::TanhOp>}},
      {"trunc", {E::Same, one, rounded<math::TruncOp>}},
  };
  return table;
}

/// Applies `compute` to operands promoted to `type`, 16-bit numbers to f32; the result is one of `element`. Where
/// `keepsNumbers`, numbers of Python and tensors without dimensions are not rounded to 16 bits first.
static FailureOr<Value> applyPromoted(Arguments &a, ArrayRef<Number> operands, Type type, Type element,
                                      OnElements compute, bool keepsNumbers = false) {
  SmallVector<Value> tensors;
  for (Number each : operands)
    if (auto tensor = dyn_cast<Value>(each))
      tensors.push_back(tensor);
  if (failed(door::requireBroadcast(a.op, tensors)))
    return failure();
  Type wide = door::sumType(type);
  return door::elementwise(a.op.builder(), tensors, element, [&](OpBuilder &b, Location loc, ValueRange given) {
    SmallVector<Value> x;
    for (Number each : operands) {
      auto tensor = dyn_cast<Value>(each);
      Type first = keepsNumbers && !(tensor && rankOf(tensor) > 0) ? wide : type;
      Value own;
      if (tensor) {
        own = door::convert(b, loc, given.front(), first);
        given = given.drop_front();
      } else {
        own = arith::ConstantOp::create(b, loc, elementAttr(cast<Attribute>(each), first));
      }
      x.push_back(door::convert(b, loc, own, wide));
    }
    return door::convert(b, loc, compute(a, b, loc, x), element);
  });
}

/// Refuses numbers of a kind that PyTorch has no such operator for.
static LogicalResult requireKind(Arguments &a, ArrayRef<Number> operands, Type type) {
  static const llvm::StringSet<> ofReals = {"elu", "gelu", "leaky_relu", "silu"};
  static const llvm::StringSet<> ofNumbers = {"abs", "addcmul", "ceil",      "floor", "floor_divide", "fmod", "neg",
                                              "pow", "relu",    "remainder", "round", "rsub",         "sub",  "trunc"};
  StringRef name = a.op.getName().split('.').second;
  auto tensor = dyn_cast<Value>(operands.front());
  bool isBool = type.isInteger(1);
  // What is subtracted must not be bool either, whatever it is promoted to.
  if (name == "sub" || name == "rsub")
    isBool = llvm::any_of(operands, [](Number each) {
      auto own = dyn_cast<Value>(each);
      return own && elementOf(own).isInteger(1);
    });
  if (isBool && ofNumbers.contains(name))
    return a.op.error() << "found elements of i1, wanted numbers";
  if (tensor && !isa<FloatType>(elementOf(tensor)) && ofReals.contains(name))
    return a.op.error() << "found elements of " << elementOf(tensor) << ", wanted floating point";
  return success();
}

static LogicalResult translateElementwise(Arguments &a, Values &results) {
  const Elementwise &entry = getTable().find(a.op.getName().split('.').second)->second;
  SmallVector<Number> operands;
  for (StringRef name : entry.operands) {
    operands.push_back(numberOf(a, name));
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
  if (entry.kind == Elementwise::Bits && isa<FloatType>(type))
    return a.op.error() << "found elements of " << type << ", wanted integers or bool";
  if (failed(requireKind(a, operands, type)))
    return failure();
  if (!entry.factor.empty() && a.has(entry.factor))
    operands.push_back(numberOf(a, entry.factor));
  bool isCondition = entry.kind == Elementwise::Condition;
  if (StringRef name = a.op.getName(); isCondition && name.contains("is") && !isa<FloatType>(type))
    type = b.getF32Type();
  return append(applyPromoted(a, operands, type, isCondition ? b.getI1Type() : type, entry.compute, entry.keepsNumbers),
                results);
}

/// A bound that is missing does not bind.
static LogicalResult translateClamp(Arguments &a, Values &results) {
  bool isHard = a.op.getName() == "aten.hardtanh";
  Number low = numberOf(a, isHard ? "min_val" : "min"), high = numberOf(a, isHard ? "max_val" : "max");
  OpBuilder &builder = a.op.builder();
  if (isHard && low.isNull())
    low = Attribute(builder.getF64FloatAttr(-1));
  if (isHard && high.isNull())
    high = Attribute(builder.getF64FloatAttr(1));
  SmallVector<Number> operands = {numberOf(a, "self"), low, high};
  if (!isa_and_present<Value>(operands[0]) || (operands[1].isNull() && operands[2].isNull()))
    return a.op.error() << "wanted a tensor and one bound at least";
  bool hasLow = !operands[1].isNull(), hasHigh = !operands[2].isNull();
  Type type = promote(a.op.builder().getContext(), operands);
  llvm::erase_if(operands, [](Number each) { return each.isNull(); });
  OnElements both[] = {
      [](Arguments &, OpBuilder &b, Location loc, ValueRange x) { return door::minimum(b, loc, x[0], x[1]); },
      [](Arguments &, OpBuilder &b, Location loc, ValueRange x) { return door::maximum(b, loc, x[0], x[1]); },
      [](Arguments &, OpBuilder &b, Location loc, ValueRange x) {
        return door::minimum(b, loc, door::maximum(b, loc, x[0], x[1]), x[2]);
      }};
  return append(applyPromoted(a, operands, type, type, both[hasLow ? (hasHigh ? 2 : 1) : 0]), results);
}

FailureOr<Value> torch::extremeOf(Arguments &a, bool isLargest) {
  SmallVector<Number> operands = {numberOf(a, "self"), numberOf(a, "other")};
  if (operands[0].isNull() || operands[1].isNull())
    return a.op.error() << "wanted two tensors";
  Type type = promote(a.op.builder().getContext(), operands);
  return applyPromoted(a, operands, type, type, isLargest ? pair<door::maximum> : pair<door::minimum>);
}

/// condition ? self : other, either a tensor or a number.
static FailureOr<Value> choose(Arguments &a, Value condition, Number x, Number y, Type type) {
  if (!elementOf(condition).isInteger(1))
    return a.op.error() << "the condition is " << condition.getType() << ", wanted bool";
  SmallVector<Value> tensors = {condition};
  for (Number each : {x, y})
    if (auto tensor = dyn_cast<Value>(each))
      tensors.push_back(tensor);
  if (failed(door::requireBroadcast(a.op, tensors)))
    return failure();
  return door::elementwise(a.op.builder(), tensors, type, [&](OpBuilder &b, Location loc, ValueRange given) {
    ValueRange rest = given.drop_front();
    auto element = [&](Number each) -> Value {
      if (!isa<Value>(each))
        return arith::ConstantOp::create(b, loc, elementAttr(cast<Attribute>(each), type));
      Value own = door::convert(b, loc, rest.front(), type);
      rest = rest.drop_front();
      return own;
    };
    Value chosen = element(x), otherwise = element(y);
    return door::select(b, loc, given[0], chosen, otherwise);
  });
}

static LogicalResult translateWhere(Arguments &a, Values &results) {
  FailureOr<Value> condition = a.required("condition");
  Number x = numberOf(a, "self"), y = numberOf(a, "other");
  if (failed(condition))
    return failure();
  if (x.isNull() || y.isNull())
    return a.op.error() << "positions of what holds are not supported: only the run time knows how many there are";
  return append(choose(a, *condition, x, y, promote(a.op.builder().getContext(), {x, y})), results);
}

static LogicalResult translateMaskedFill(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self"), mask = a.required("mask");
  Number value = numberOf(a, "value");
  if (failed(tensor) || failed(mask) || value.isNull())
    return a.op.error() << "wanted a tensor, a mask and a value";
  return append(choose(a, *mask, value, *tensor, elementOf(*tensor)), results);
}

void torch::addElementwise(door::Door &door) {
  for (const auto &entry : getTable())
    add(door, ("aten." + entry.getKey()).str(), translateElementwise);
  add(door, "aten.clamp", translateClamp);
  add(door, "aten.clamp_max", translateClamp);
  add(door, "aten.clamp_min", translateClamp);
  add(door, "aten.hardtanh", translateClamp);
  add(door, "aten.masked_fill", translateMaskedFill);
  add(door, "aten.where", translateWhere);
}
