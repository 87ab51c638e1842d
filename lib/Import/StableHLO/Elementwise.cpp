//===- Elementwise.cpp - StableHLO elementwise ops ------------------------===//
//
// The same table serves ops on tensors and the regions of reductions, whose ops on rank-0 tensors are scalar
// computations.
//
//===----------------------------------------------------------------------===//
#include "StableHLO.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "saccade/Import/Common/Functions.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::stablehlo;

namespace {

/// Computes one result element of type `element` from the operand elements.
using OnElements = Value (*)(Operation *op, OpBuilder &b, Location loc, ValueRange x, Type element);

/// The element types that an op accepts.
enum Domain { Any, Numbers, Reals, Bits };

struct Elementwise {
  unsigned operands;
  Domain domain;
  OnElements compute;
};

} // namespace

static Value number(OpBuilder &b, Location loc, Value like, double value) {
  return frontend::makeNumber(b, loc, like.getType(), value);
}

/// Applies `Op` to floating-point numbers.
template <typename Op> static Value unary(Operation *, OpBuilder &b, Location loc, ValueRange x, Type) {
  return b.createOrFold<Op>(loc, x[0]);
}
template <typename Op> static Value binary(Operation *, OpBuilder &b, Location loc, ValueRange x, Type) {
  return b.createOrFold<Op>(loc, x[0], x[1]);
}

/// A function shared by all frontends.
template <Value (*compute)(OpBuilder &, Location, Value)>
static Value shared(Operation *, OpBuilder &b, Location loc, ValueRange x, Type) {
  return compute(b, loc, x[0]);
}
template <Value (*compute)(OpBuilder &, Location, Value, Value)>
static Value shared(Operation *, OpBuilder &b, Location loc, ValueRange x, Type) {
  return compute(b, loc, x[0], x[1]);
}

/// On i1, add is "or" and multiply is "and".
static Value add(Operation *, OpBuilder &b, Location loc, ValueRange x, Type type) {
  return type.isInteger(1) ? frontend::maximum(b, loc, x[0], x[1]) : frontend::add(b, loc, x[0], x[1]);
}
static Value multiply(Operation *, OpBuilder &b, Location loc, ValueRange x, Type type) {
  return type.isInteger(1) ? frontend::minimum(b, loc, x[0], x[1]) : frontend::mul(b, loc, x[0], x[1]);
}

/// `byZero` if the integer divisor is 0, else `value`.
static Value guardDivisionByZero(OpBuilder &b, Location loc, Value divisor, Value byZero, Value value) {
  Value isZero = frontend::compare(b, loc, arith::CmpIPredicate::eq, divisor, number(b, loc, divisor, 0));
  return frontend::select(b, loc, isZero, byZero, value);
}

/// Integer division by 0 gives −1; the remainder is the dividend.
static Value divide(Operation *, OpBuilder &b, Location loc, ValueRange x, Type type) {
  Value quotient = frontend::div(b, loc, x[0], x[1]);
  return isa<FloatType>(type) ? quotient : guardDivisionByZero(b, loc, x[1], number(b, loc, x[0], -1), quotient);
}
static Value remainder(Operation *, OpBuilder &b, Location loc, ValueRange x, Type type) {
  Value rest = frontend::mod(b, loc, x[0], x[1], /*truncated=*/true);
  return isa<FloatType>(type) ? rest : guardDivisionByZero(b, loc, x[1], x[0], rest);
}

/// Shifts by at least the bit width, which are undefined in LLVM, give 0 or the sign. The shift amount is unsigned.
template <typename Op> static Value shift(Operation *, OpBuilder &b, Location loc, ValueRange x, Type type) {
  unsigned width = type.getIntOrFloatBitWidth();
  if constexpr (std::is_same_v<Op, arith::ShRSIOp>)
    return b.createOrFold<Op>(loc, x[0], b.createOrFold<arith::MinUIOp>(loc, x[1], number(b, loc, x[1], width - 1)));
  Value isFar = frontend::compare(b, loc, arith::CmpIPredicate::uge, x[1], number(b, loc, x[1], width));
  return frontend::select(b, loc, isFar, number(b, loc, x[0], 0), b.createOrFold<Op>(loc, x[0], x[1]));
}

/// Floating point to integer conversion saturates; NaN gives 0.
static Value convertTo(Operation *, OpBuilder &b, Location loc, ValueRange x, Type element) {
  Value value = x[0];
  if (!isa<FloatType>(value.getType()) || isa<FloatType>(element) || element.isInteger(1))
    return frontend::convert(b, loc, value, element);
  // f16 cannot represent the limits of integers.
  if (value.getType().getIntOrFloatBitWidth() < 32)
    value = frontend::convert(b, loc, value, b.getF32Type());
  double limit = std::ldexp(1.0, element.getIntOrFloatBitWidth() - 1);
  Value isLow = frontend::compare(b, loc, arith::CmpIPredicate::slt, value, number(b, loc, value, -limit));
  Value isHigh = frontend::compare(b, loc, arith::CmpIPredicate::sge, value, number(b, loc, value, limit));
  Value isOutside = b.createOrFold<arith::OrIOp>(loc, isLow, isHigh);
  isOutside = b.createOrFold<arith::OrIOp>(loc, isOutside, frontend::isNaN(b, loc, value));
  Value inside =
      frontend::convert(b, loc, frontend::select(b, loc, isOutside, number(b, loc, value, 0), value), element);
  auto extreme = [&](bool largest) {
    return arith::ConstantOp::create(b, loc, frontend::extremeAttr(element, largest));
  };
  return frontend::select(b, loc, isLow, extreme(false), frontend::select(b, loc, isHigh, extreme(true), inside));
}

static Value identity(Operation *, OpBuilder &, Location, ValueRange x, Type) { return x[0]; }

static Value logicalNot(Operation *, OpBuilder &b, Location loc, ValueRange x, Type type) {
  return b.createOrFold<arith::XOrIOp>(loc, x[0], number(b, loc, x[0], type.isInteger(1) ? 1 : -1));
}

static Value isFinite(Operation *, OpBuilder &b, Location loc, ValueRange x, Type) {
  return b.createOrFold<math::IsFiniteOp>(loc, x[0]);
}

static Value power(Operation *, OpBuilder &b, Location loc, ValueRange x, Type) {
  return frontend::power(b, loc, x[0], x[1]);
}

static Value clamp(Operation *, OpBuilder &b, Location loc, ValueRange x, Type) {
  return frontend::minimum(b, loc, x[2], frontend::maximum(b, loc, x[0], x[1]));
}

static Value choose(Operation *, OpBuilder &b, Location loc, ValueRange x, Type) {
  return frontend::select(b, loc, x[0], x[1], x[2]);
}

//===- Comparisons ----------------------------------------------------------===//

/// The single word in an attribute such as #stablehlo<comparison_direction GE>; empty if missing.
static StringRef wordOf(Operation *op, StringRef attribute) {
  std::optional<frontend::OpaqueText> text = frontend::parseOpaque(op->getAttr(attribute));
  return text && text->items.size() == 1 && text->items[0].words.size() == 1 ? text->items[0].words[0] : StringRef();
}

static std::optional<arith::CmpIPredicate> predicateOf(Operation *op) {
  using Predicate = arith::CmpIPredicate;
  return llvm::StringSwitch<std::optional<Predicate>>(wordOf(op, "comparison_direction"))
      .Case("EQ", Predicate::eq)
      .Case("NE", Predicate::ne)
      .Case("LT", Predicate::slt)
      .Case("LE", Predicate::sle)
      .Case("GT", Predicate::sgt)
      .Case("GE", Predicate::sge)
      .Default(std::nullopt);
}

static Value compare(Operation *op, OpBuilder &b, Location loc, ValueRange x, Type) {
  SmallVector<Value> operands(x);
  // Compare i1 unsigned: as a signed i1, true would be −1.
  if (x[0].getType().isInteger(1))
    for (Value &operand : operands)
      operand = frontend::convert(b, loc, operand, b.getI8Type());
  return frontend::compare(b, loc, *predicateOf(op), operands[0], operands[1]);
}

//===- The ops --------------------------------------------------------------===//

static const llvm::StringMap<Elementwise> &getTable() {
  static const llvm::StringMap<Elementwise> table = {
      {"abs", {1, Numbers, shared<frontend::absolute>}},
      {"add", {2, Any, add}},
      {"and", {2, Bits, binary<arith::AndIOp>}},
      {"atan2", {2, Reals, binary<math::Atan2Op>}},
      {"cbrt", {1, Reals, unary<math::CbrtOp>}},
      {"ceil", {1, Reals, unary<math::CeilOp>}},
      {"clamp", {3, Numbers, clamp}},
      {"compare", {2, Any, compare}},
      {"convert", {1, Any, convertTo}},
      {"cosine", {1, Reals, unary<math::CosOp>}},
      {"divide", {2, Numbers, divide}},
      {"erf", {1, Reals, unary<math::ErfOp>}},
      {"erfc", {1, Reals, unary<math::ErfcOp>}},
      {"exponential", {1, Reals, unary<math::ExpOp>}},
      {"exponential_minus_one", {1, Reals, unary<math::ExpM1Op>}},
      {"floor", {1, Reals, unary<math::FloorOp>}},
      {"is_finite", {1, Reals, isFinite}},
      {"log", {1, Reals, unary<math::LogOp>}},
      {"log_plus_one", {1, Reals, unary<math::Log1pOp>}},
      {"logistic", {1, Reals, shared<frontend::sigmoid>}},
      {"maximum", {2, Any, shared<frontend::maximum>}},
      {"minimum", {2, Any, shared<frontend::minimum>}},
      {"multiply", {2, Any, multiply}},
      {"negate", {1, Numbers, shared<frontend::negate>}},
      {"not", {1, Bits, logicalNot}},
      {"optimization_barrier", {1, Any, identity}},
      {"or", {2, Bits, binary<arith::OrIOp>}},
      {"power", {2, Numbers, power}},
      {"remainder", {2, Numbers, remainder}},
      {"round_nearest_afz", {1, Reals, unary<math::RoundOp>}},
      {"round_nearest_even", {1, Reals, unary<math::RoundEvenOp>}},
      {"rsqrt", {1, Reals, unary<math::RsqrtOp>}},
      {"select", {3, Any, choose}},
      {"shift_left", {2, Bits, shift<arith::ShLIOp>}},
      {"shift_right_arithmetic", {2, Bits, shift<arith::ShRSIOp>}},
      {"shift_right_logical", {2, Bits, shift<arith::ShRUIOp>}},
      {"sign", {1, Numbers, shared<frontend::sign>}},
      {"sine", {1, Reals, unary<math::SinOp>}},
      {"sqrt", {1, Reals, unary<math::SqrtOp>}},
      {"square", {1, Numbers, shared<frontend::square>}},
      {"subtract", {2, Numbers, shared<frontend::sub>}},
      {"tan", {1, Reals, unary<math::TanOp>}},
      {"tanh", {1, Reals, unary<math::TanhOp>}},
      {"xor", {2, Bits, binary<arith::XOrIOp>}},
  };
  return table;
}

/// Verifies the operand element types `elements`, the result type, and the kind of a comparison.
static LogicalResult verifyElements(StringRef name, const Elementwise &entry, Operation *op, ArrayRef<Type> elements,
                                    llvm::function_ref<InFlightDiagnostic()> error) {
  bool isSelect = name == "select", isCompare = name == "compare";
  if (isSelect && !elements[0].isInteger(1))
    return error() << "the predicate has elements of " << elements[0] << ", expected i1";
  ArrayRef<Type> sameTyped = isSelect ? elements.drop_front() : elements;
  for (Type each : sameTyped)
    if (each != sameTyped[0])
      return error() << "found elements of " << each << " and of " << sameTyped[0];
  Type element = sameTyped[0];
  bool isReal = isa<FloatType>(element), isFlag = element.isInteger(1);
  if (entry.domain == Reals && !isReal)
    return error() << "found elements of " << element << ", expected floating point";
  if ((entry.domain == Bits && isReal) || (entry.domain == Numbers && isFlag))
    return error() << "found elements of " << element << ", expected " << (isReal ? "integers" : "numbers");
  auto result = op->getNumResults() == 1 ? dyn_cast<RankedTensorType>(op->getResult(0).getType()) : nullptr;
  if (!result)
    return error() << "expected one result that is a ranked tensor";
  bool makesFlags = isCompare || name == "is_finite";
  if (makesFlags ? !result.getElementType().isInteger(1) : name != "convert" && result.getElementType() != element)
    return error() << "found result elements of " << result.getElementType() << " for operand elements of " << element;
  if (isCompare && (!predicateOf(op) || wordOf(op, "compare_type") == "TOTALORDER"))
    return error() << "a comparison '" << wordOf(op, "comparison_direction") << "' of type '"
                   << wordOf(op, "compare_type") << "' is not supported";
  return success();
}

/// The value of a splat constant or of a constant fill.
static std::optional<double> constantNumber(Value tensor) {
  DenseFPElementsAttr constant;
  FloatAttr filled;
  auto fill = tensor.getDefiningOp<linalg::FillOp>();
  if (fill && matchPattern(fill.getInputs()[0], m_Constant(&filled)))
    return filled.getValueAsDouble();
  if (!matchPattern(tensor, m_Constant(&constant)) || !constant.isSplat())
    return std::nullopt;
  APFloat value = constant.getSplatValue<APFloat>();
  bool loses;
  value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &loses);
  return value.convertToDouble();
}

static LogicalResult translateElementwise(FrontendOp &op, Values &results) {
  const Elementwise &entry = getTable().find(op.getName())->second;
  if (failed(requireOperands(op, entry.operands)) || failed(requireSameShape(op, op.operands())))
    return failure();
  SmallVector<Value> inputs = op.operands();
  auto elements = llvm::map_to_vector(inputs, [](Value each) { return typeOf(each).getElementType(); });
  if (failed(verifyElements(op.getName(), entry, op.getOperation(), elements, [&] { return op.error(); })))
    return failure();
  std::optional<double> exponent = op.getName() == "power" ? constantNumber(inputs[1]) : std::nullopt;
  Type element = declaredElement(op);
  auto body = [&](OpBuilder &b, Location loc, ValueRange x) -> Value {
    if (exponent)
      return frontend::power(b, loc, x[0], x[1], exponent);
    return entry.compute(op.getOperation(), b, loc, x, element);
  };
  results.push_back(frontend::elementwise(op.builder(), inputs, element, body));
  return success();
}

/// Reduces precision by a cast to a supported type and back.
static LogicalResult translateReducePrecision(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1)))
    return failure();
  if (!isa<FloatType>(typeOf(op.operand(0)).getElementType()))
    return op.error() << "found " << op.operand(0).getType() << ", expected floating point";
  ImplicitLocOpBuilder &b = op.builder();
  int64_t exponent = op.integer("exponent_bits", 0), mantissa = op.integer("mantissa_bits", 0);
  Type types[] = {b.getBF16Type(), b.getF16Type(), b.getF32Type(), b.getF64Type()};
  for (auto type : types) {
    const llvm::fltSemantics &semantics = cast<FloatType>(type).getFloatSemantics();
    int64_t digits = APFloat::semanticsPrecision(semantics) - 1;
    if (digits != mantissa || cast<FloatType>(type).getWidth() - 1 - digits != exponent)
      continue;
    Type own = typeOf(op.operand(0)).getElementType();
    bool isWider = cast<FloatType>(type).getWidth() >= own.getIntOrFloatBitWidth();
    Value cut = isWider ? op.operand(0) : frontend::castElements(b, op.operand(0), type);
    results.push_back(frontend::castElements(b, cut, own));
    return success();
  }
  return op.error() << "a precision of " << exponent << " and " << mantissa << " bits is not supported";
}

void stablehlo::addElementwise(frontend::Frontend &frontend) {
  for (const auto &entry : getTable())
    frontend.translators[entry.getKey()] = translateElementwise;
  frontend.translators["reduce_precision"] = translateReducePrecision;
}

//===- Regions on elements ----------------------------------------------------===//

/// The ops of a block without its terminator, which is unregistered.
static auto withoutLast(Block &block) { return llvm::make_range(block.begin(), std::prev(block.end())); }

static StringRef nameIn(Operation &op) { return op.getName().getStringRef().split('.').second; }

LogicalResult stablehlo::requireScalarRegion(FrontendOp &op, Region &region, unsigned arguments, unsigned results) {
  if (!region.hasOneBlock() || region.front().empty() || region.getNumArguments() != arguments ||
      region.front().back().getNumOperands() != results)
    return op.error() << "the region must have one block with " << arguments << " arguments and " << results
                      << " results";
  for (Value value : region.front().back().getOperands())
    if (value.getParentRegion() != &region)
      return op.error() << "the region returns a value from outside";
  auto elementOf = [](Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return tensor && tensor.getRank() == 0 ? tensor.getElementType() : Type();
  };
  for (Value argument : region.getArguments())
    if (!elementOf(argument.getType()))
      return op.error() << "the region has an argument " << argument.getType() << ", expected tensors of rank 0";
  for (Operation &each : withoutLast(region.front())) {
    auto error = [&] { return op.error() << "in the region, " << each.getName() << ": "; };
    auto elements = llvm::map_to_vector(each.getOperandTypes(), elementOf);
    if (llvm::is_contained(elements, Type()) ||
        !llvm::all_of(each.getOperands(), [&](Value x) { return x.getParentRegion() == &region; }))
      return error() << "expected operands that are rank-0 tensors defined in the region";
    if (nameIn(each) == "constant") {
      auto value = each.getAttrOfType<DenseElementsAttr>("value");
      if (!value || !value.isSplat() || each.getNumResults() != 1 || each.getResult(0).getType() != value.getType() ||
          !elementOf(value.getType()))
        return error() << "expected a scalar constant";
      continue;
    }
    auto entry = getTable().find(nameIn(each));
    if (entry == getTable().end() || each.getNumOperands() != entry->second.operands)
      return error() << "this op is not supported";
    if (failed(verifyElements(nameIn(each), entry->second, &each, elements, error)))
      return failure();
  }
  return success();
}

SmallVector<Value> stablehlo::computeRegion(Region &region, OpBuilder &b, Location loc, ValueRange arguments) {
  IRMapping mapping;
  mapping.map(region.getArguments(), arguments);
  for (Operation &each : withoutLast(region.front())) {
    Value result;
    if (nameIn(each) == "constant") {
      auto value = cast<DenseElementsAttr>(each.getAttr("value"));
      result = arith::ConstantOp::create(b, loc, cast<TypedAttr>(value.getSplatValue<Attribute>()));
    } else {
      auto operands = llvm::map_to_vector(each.getOperands(), [&](Value x) { return mapping.lookup(x); });
      Type element = getElementTypeOrSelf(each.getResult(0).getType());
      result = getTable().find(nameIn(each))->second.compute(&each, b, loc, operands, element);
    }
    mapping.map(each.getResult(0), result);
  }
  return llvm::map_to_vector(region.front().back().getOperands(), [&](Value x) { return mapping.lookupOrDefault(x); });
}
