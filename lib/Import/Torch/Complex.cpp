//===- Complex.cpp - Complex tensors of PyTorch ---------------------------===//
#include "Complex.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "saccade/Import/Common/Functions.h"
#include "saccade/Import/Common/Structured.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;

namespace {

struct Parts {
  Value real, imaginary;
};

} // namespace

//===- Pairs --------------------------------------------------------------===//

/// The parts of a complex tensor; nullopt for others.
static std::optional<Parts> partsOf(Value tensor) {
  auto joined = tensor ? tensor.getDefiningOp<UnrealizedConversionCastOp>() : nullptr;
  if (!joined || joined.getNumOperands() != 2)
    return std::nullopt;
  return Parts{joined.getOperand(0), joined.getOperand(1)};
}

static Value join(ImplicitLocOpBuilder &b, Parts parts) {
  auto type = cast<RankedTensorType>(parts.real.getType());
  Type complex = type.clone(ComplexType::get(type.getElementType()));
  return UnrealizedConversionCastOp::create(b, TypeRange{complex}, ValueRange{parts.real, parts.imaginary})
      .getResult(0);
}

/// Joins the parts of result 0, which have the extents that the op declares.
static void appendJoined(FrontendOp &op, Parts parts, Values &results) {
  parts.real = frontend::declareExtents(op, 0, parts.real);
  parts.imaginary = frontend::declareExtents(op, 0, parts.imaginary);
  results.push_back(join(op.builder(), parts));
}

static ComplexType complexTypeOf(FrontendOp &op) {
  auto type = dyn_cast_or_null<TypeAttr>(op.attribute("dtype"));
  return type ? dyn_cast<ComplexType>(type.getValue()) : ComplexType();
}

bool torch::isOnComplex(FrontendOp &op) {
  return complexTypeOf(op) ||
         llvm::any_of(op.getOperation()->getOperands(), [](Value each) { return partsOf(each).has_value(); });
}

void torch::eraseComplexCasts(func::FuncOp function) {
  for (auto each : llvm::make_early_inc_range(function.getOps<UnrealizedConversionCastOp>()))
    if (each.use_empty())
      each.erase();
}

//===- Operators that are linear ------------------------------------------===//

/// Operators that fill a tensor with a real number.
static bool isCreation(StringRef name) {
  return name.contains("zeros") || name.contains("ones") || name.contains("empty");
}

/// Operators that move or add elements: they apply to each part.
static bool isLinear(StringRef name) {
  static const StringRef names =
      "_to_copy _unsafe_view add alias as_strided cat chunk clone constant_pad_nd contiguous copy cumsum detach "
      "diagonal diff embedding expand expand_as flatten flip gather index index_put index_select lift_fresh_copy "
      "mT masked_fill mean narrow neg pad permute repeat repeat_interleave reshape reshape_as roll rsub scatter "
      "scatter_add select select_scatter slice slice_scatter split split_with_sizes squeeze stack sub sum t tile "
      "to transpose tril triu type_as unbind unflatten unfold unsqueeze view view_as where";
  SmallVector<StringRef> listed;
  names.split(listed, ' ');
  return llvm::is_contained(listed, name) || isCreation(name);
}

static bool isConversion(StringRef name) { return name == "_to_copy" || name == "to"; }

/// Operators of isLinear that are not linear with these operands: numbers are true if either part is, products are no
/// products of parts, and sums in a real type drop a part.
static bool isUnsupported(FrontendOp &op, StringRef name) {
  auto isBool = [](Type type) { return type.isInteger(1); };
  if (name == "type_as")
    return isBool(elementOf(op.operand(1)));
  auto dtype = dyn_cast_or_null<TypeAttr>(op.attribute("dtype"));
  if (isConversion(name))
    return dtype && isBool(dtype.getValue());
  if (dtype && !isCreation(name) && !complexTypeOf(op))
    return true;
  auto reduce = dyn_cast_or_null<StringAttr>(op.attribute("reduce"));
  return reduce && reduce.getValue() != "add";
}

/// Operators of which the result is real although an operand is complex: it gives a shape or a real type, or is written
/// to a real tensor.
static bool isRealResult(FrontendOp &op, StringRef name, bool isFirstComplex, bool isSecondComplex) {
  if (llvm::is_contained({"copy", "expand_as", "reshape_as", "view_as"}, name))
    return !isFirstComplex;
  if (name == "type_as")
    return !isSecondComplex;
  // A conversion to real numbers drops the imaginary part; filled tensors have none.
  return (isConversion(name) || isCreation(name)) && op.attribute("dtype") && !complexTypeOf(op);
}

/// Whether an operand has elements of the result, as opposed to positions, conditions and sizes.
static bool isData(StringRef name) {
  return llvm::is_contained({"input", "other", "self", "source", "src", "tensors", "value", "values", "weight"}, name);
}

/// The operands of one part. Real ones have an imaginary part of 0, unless they multiply both.
static SmallVector<Value> operandsOf(FrontendOp &op, bool isReal, bool multiplies) {
  ImplicitLocOpBuilder &b = op.builder();
  auto names = op.getOperation()->getAttrOfType<ArrayAttr>("arguments");
  SmallVector<Value> operands;
  for (auto [i, given] : llvm::enumerate(op.getOperation()->getOperands())) {
    auto type = dyn_cast<RankedTensorType>(given.getType());
    auto name = names && i < names.size() ? dyn_cast<StringAttr>(names[i]) : StringAttr();
    if (std::optional<Parts> parts = partsOf(given))
      operands.push_back(isReal ? parts->real : parts->imaginary);
    else if (isReal || multiplies || !type || !name || !isData(name.getValue()))
      operands.push_back(given);
    else
      operands.push_back(frontend::splat(b, frontend::extentsOf(b, given), type.getElementType(), 0));
  }
  return operands;
}

/// Translates one part. Numbers have an imaginary part of 0.
static LogicalResult translatePart(FrontendOp &op, const frontend::Translator &translate, bool isReal, bool multiplies,
                                   Values &results) {
  Operation *each = op.getOperation();
  SmallVector<Value> operands = llvm::to_vector(each->getOperands());
  DictionaryAttr attributes = each->getAttrDictionary();
  each->setOperands(operandsOf(op, isReal, multiplies));
  Builder b(each->getContext());
  if (ComplexType complex = complexTypeOf(op))
    each->setAttr("dtype", TypeAttr::get(complex.getElementType()));
  for (StringRef name : {"other", "self", "value"})
    if (!isReal && !multiplies && isa_and_present<IntegerAttr, FloatAttr>(each->getAttr(name)))
      each->setAttr(name, b.getI64IntegerAttr(0));
  LogicalResult done = translate(op, results);
  each->setOperands(operands);
  each->setAttrs(attributes);
  return done;
}

/// Translates an op for each part. `multiplies`: its real operands multiply both parts.
static LogicalResult translateParts(FrontendOp &op, const frontend::Translator &translate, bool multiplies,
                                    Values &results) {
  ImplicitLocOpBuilder &b = op.builder();
  SmallVector<Value> real, imaginary;
  if (failed(translatePart(op, translate, /*isReal=*/true, multiplies, real)))
    return failure();
  if (isCreation(op.getName()))
    for (Value each : real)
      imaginary.push_back(frontend::splat(b, frontend::extentsOf(b, each), elementOf(each), 0));
  else if (failed(translatePart(op, translate, /*isReal=*/false, multiplies, imaginary)))
    return failure();
  for (auto [i, x, y] : llvm::enumerate(real, imaginary))
    results.push_back(join(b, {frontend::declareExtents(op, i, x), frontend::declareExtents(op, i, y)}));
  return success();
}

//===- Products -----------------------------------------------------------===//

/// What `compute` gives for the parts a, b, c, d of a + bi and c + di, in the type that they are promoted to.
static Value combine(ImplicitLocOpBuilder &b, Parts x, Parts y, Type type, frontend::ScalarBuilder compute) {
  return frontend::elementwise(
      b, {x.real, x.imaginary, y.real, y.imaginary}, type, [&](OpBuilder &nested, Location loc, ValueRange given) {
        auto wide = llvm::map_to_vector(given, [&](Value each) { return frontend::convert(nested, loc, each, type); });
        return compute(nested, loc, wide);
      });
}

static LogicalResult multiply(FrontendOp &op, Parts x, Parts y, Values &results) {
  using namespace frontend;
  ImplicitLocOpBuilder &b = op.builder();
  if (failed(requireBroadcast(op, {x.real, y.real})))
    return failure();
  Type type = torch::promote(b.getContext(), {x.real, y.real});
  Value real = combine(b, x, y, type, [](OpBuilder &n, Location loc, ValueRange v) {
    return sub(n, loc, mul(n, loc, v[0], v[2]), mul(n, loc, v[1], v[3]));
  });
  Value imaginary = combine(b, x, y, type, [](OpBuilder &n, Location loc, ValueRange v) {
    return add(n, loc, mul(n, loc, v[0], v[3]), mul(n, loc, v[1], v[2]));
  });
  appendJoined(op, {real, imaginary}, results);
  return success();
}

/// A part of (a + bi) / (c + di) by the algorithm of R. L. Smith (Algorithm 116, Communications of the ACM, 1962),
/// which divides by the larger of c and d first.
static Value smithQuotient(OpBuilder &b, Location loc, ValueRange v, bool isReal) {
  using namespace frontend;
  Value isFirst = compare(b, loc, arith::CmpIPredicate::sge, absolute(b, loc, v[2]), absolute(b, loc, v[3]));
  Value large = select(b, loc, isFirst, v[2], v[3]), small = select(b, loc, isFirst, v[3], v[2]);
  Value ratio = div(b, loc, small, large), divisor = add(b, loc, large, mul(b, loc, small, ratio));
  // With r = d / c: (a + b r, b − a r). With r = c / d: (a r + b, b r − a).
  Value x = isReal ? v[0] : v[1], y = isReal ? v[1] : v[0];
  auto joined = [&](Value p, Value q) { return isReal ? add(b, loc, p, q) : sub(b, loc, p, q); };
  Value one = joined(x, mul(b, loc, y, ratio)), two = joined(mul(b, loc, x, ratio), y);
  return div(b, loc, select(b, loc, isFirst, one, two), divisor);
}

static LogicalResult divide(FrontendOp &op, Parts x, Parts y, Values &results) {
  ImplicitLocOpBuilder &b = op.builder();
  if (failed(frontend::requireBroadcast(op, {x.real, y.real})))
    return failure();
  Type type = torch::promote(b.getContext(), {x.real, y.real});
  auto part = [&](bool isReal) {
    return combine(b, x, y, type, [&](OpBuilder &nested, Location loc, ValueRange v) {
      return smithQuotient(nested, loc, v, isReal);
    });
  };
  Value real = part(true), imaginary = part(false);
  appendJoined(op, {real, imaginary}, results);
  return success();
}

/// √(a² + b²) as m · √(1 + (n / m)²) for the larger and the smaller absolute value.
static Value absoluteOf(ImplicitLocOpBuilder &b, Parts x) {
  using namespace frontend;
  Type type = elementOf(x.real);
  return elementwise(b, {x.real, x.imaginary}, type, [&](OpBuilder &nested, Location loc, ValueRange v) -> Value {
    Value p = absolute(nested, loc, v[0]), q = absolute(nested, loc, v[1]);
    Value large = maximum(nested, loc, p, q), ratio = div(nested, loc, minimum(nested, loc, p, q), large);
    Value one = makeNumber(nested, loc, type, 1);
    Value root = nested.createOrFold<math::SqrtOp>(loc, add(nested, loc, one, mul(nested, loc, ratio, ratio)));
    // 0 and ∞ have no ratio.
    Value isFinite = math::IsFiniteOp::create(nested, loc, large);
    Value hasRatio = nested.createOrFold<arith::AndIOp>(
        loc, isFinite, compare(nested, loc, arith::CmpIPredicate::sgt, large, makeNumber(nested, loc, type, 0)));
    return select(nested, loc, hasRatio, mul(nested, loc, large, root), large);
  });
}

//===- Operators ----------------------------------------------------------===//

LogicalResult torch::translateComplex(FrontendOp &op, const frontend::Translator &translate, Values &results) {
  ImplicitLocOpBuilder &b = op.builder();
  StringRef name = op.getName();
  name.consume_front("aten.");
  std::optional<Parts> x = partsOf(op.operand(0)), y = op.numOperands() > 1 ? partsOf(op.operand(1)) : std::nullopt;
  if (x && name == "view_as_real") {
    int64_t rank = rankOf(x->real);
    results.push_back(
        frontend::concat(b, {frontend::unsqueeze(b, x->real, rank), frontend::unsqueeze(b, x->imaginary, rank)}, rank));
    return success();
  }
  if (x && name == "abs") {
    results.push_back(absoluteOf(b, *x));
    return success();
  }
  if (x && (name == "real" || name == "imag")) {
    results.push_back(name == "real" ? x->real : x->imaginary);
    return success();
  }
  if (x && (name == "_conj" || name == "_conj_physical" || name == "conj_physical" || name == "conj")) {
    Type type = elementOf(x->imaginary);
    Value negative = frontend::elementwise(b, x->imaginary, type, [](OpBuilder &nested, Location loc, ValueRange v) {
      return frontend::negate(nested, loc, v[0]);
    });
    appendJoined(op, {x->real, negative}, results);
    return success();
  }
  if (x && (name == "resolve_conj" || name == "resolve_neg")) {
    appendJoined(op, *x, results);
    return success();
  }
  if (name == "mul")
    return x && y ? multiply(op, *x, *y, results) : translateParts(op, translate, /*multiplies=*/true, results);
  if (x && name == "div" && !op.attribute("rounding_mode"))
    return y ? divide(op, *x, *y, results) : translateParts(op, translate, /*multiplies=*/true, results);
  if (isLinear(name) && isUnsupported(op, name))
    return op.error() << "complex numbers are not supported by this op with these arguments";
  if (isRealResult(op, name, x.has_value(), y.has_value()))
    return translatePart(op, translate, /*isReal=*/true, /*multiplies=*/false, results);
  if (isLinear(name))
    return translateParts(op, translate, /*multiplies=*/false, results);
  return op.error() << "complex numbers are not supported by this op";
}

/// The last dimension has the real and the imaginary parts.
static LogicalResult translateViewAsComplex(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  auto type = cast<RankedTensorType>(tensor->getType());
  if (!isa<FloatType>(type.getElementType()) || type.getRank() == 0 || type.getShape().back() != 2)
    return a.op.error() << "found " << type << ", expected floats with a last dimension of 2";
  auto part = [&](int64_t i) { return frontend::selectIndex(a.op.builder(), *tensor, type.getRank() - 1, i); };
  Value real = part(0), imaginary = part(1);
  appendJoined(a.op, {real, imaginary}, results);
  return success();
}

/// Parts of two tensors: these themselves (complex), or those of an absolute value and an angle (polar).
static LogicalResult translatePair(Arguments &a, Values &results) {
  bool isPolar = a.op.getName() == "aten.polar";
  FailureOr<Value> x = a.required(isPolar ? "abs" : "real"), y = a.required(isPolar ? "angle" : "imag");
  if (failed(x) || failed(y) || failed(frontend::requireBroadcast(a.op, {*x, *y})))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  Type type = elementOf(*x);
  if (!isa<FloatType>(type) || type != elementOf(*y))
    return a.op.error() << "found " << x->getType() << " and " << y->getType() << ", expected floats of one type";
  auto part = [&](bool isReal) {
    return frontend::elementwise(b, {*x, *y}, type, [&](OpBuilder &nested, Location loc, ValueRange v) -> Value {
      if (!isPolar)
        return v[isReal ? 0 : 1];
      Value wide = v[1];
      Value factor = isReal ? nested.createOrFold<math::CosOp>(loc, wide) : nested.createOrFold<math::SinOp>(loc, wide);
      return frontend::mul(nested, loc, v[0], factor);
    });
  };
  Value real = part(true), imaginary = part(false);
  appendJoined(a.op, {real, imaginary}, results);
  return success();
}

/// Real tensors are their own conjugates and real parts.
static LogicalResult translateReal(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  results.push_back(*tensor);
  return success();
}

static LogicalResult refuseReal(Arguments &a, Values &) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  return a.op.error() << "found " << tensor->getType() << ", expected complex numbers";
}

void torch::addComplex(frontend::Frontend &frontend) {
  add(frontend, "aten.view_as_complex", translateViewAsComplex);
  for (StringRef name : {"aten.complex", "aten.polar"})
    add(frontend, name, translatePair);
  for (StringRef name : {"aten._conj", "aten._conj_physical", "aten.conj", "aten.conj_physical", "aten.real",
                         "aten.resolve_conj", "aten.resolve_neg"})
    add(frontend, name, translateReal);
  for (StringRef name : {"aten.imag", "aten.view_as_real"})
    add(frontend, name, refuseReal);
}
