//===- Creations.cpp - PyTorch creation and conversion operators ----------===//
#include "Torch.h"
#include "saccade/Import/Common/Views.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;

/// The element type of a new tensor: `dtype`, else the type of `self`, else `defaultValue`.
static Type newType(const Arguments &a, Type defaultValue) {
  if (Value like = a.tensor("self"))
    defaultValue = elementOf(like);
  return a.type("dtype", defaultValue);
}

/// The argument `size`, or the shape of `self`.
static FailureOr<Extents> newShape(const Arguments &a) {
  FailureOr<std::optional<Extents>> size = a.sizes("size");
  if (failed(size))
    return failure();
  if (*size)
    return a.shape(**size);
  FailureOr<Value> like = a.required("self");
  if (failed(like))
    return failure();
  return frontend::extentsOf(a.op.builder(), *like);
}

/// Fills with the value implied by the operator name, such as zeros, ones_like, new_zeros.
static LogicalResult translateConstant(Arguments &a, Values &results) {
  ImplicitLocOpBuilder &b = a.op.builder();
  FailureOr<Extents> shape = newShape(a);
  if (failed(shape))
    return failure();
  double value = a.op.getName().contains("ones") ? 1 : 0;
  results.push_back(frontend::filled(b, *shape, frontend::numberAttr(newType(a, b.getF32Type()), value)));
  return success();
}

static LogicalResult translateFull(Arguments &a, Values &results) {
  ImplicitLocOpBuilder &b = a.op.builder();
  TensorOrScalar value;
  for (StringRef name : {"fill_value", "value", "s"})
    value = value.isNull() ? tensorOrScalar(a, name) : value;
  if (value.isNull())
    return a.op.error() << "the argument 'fill_value' is missing";
  Extents shape;
  bool isScalar = a.op.getName() == "aten.scalar_tensor";
  if (!isScalar) {
    FailureOr<Extents> given = newShape(a);
    if (failed(given))
      return failure();
    shape = *given;
  }
  // It is of the default type whatever its number is.
  Type type = newType(a, isScalar ? Type(b.getF32Type()) : promote(b.getContext(), {value}));
  if (auto tensor = dyn_cast<Value>(value)) {
    if (rankOf(tensor) != 0)
      return a.op.error() << "'fill_value' is " << tensor.getType() << ", expected a scalar";
    results.push_back(frontend::broadcastTo(b, frontend::castElements(b, tensor, type), shape));
    return success();
  }
  results.push_back(frontend::filled(b, shape, elementAttr(cast<Attribute>(value), type)));
  return success();
}

/// start, start + step, … before end; floating-point bounds must be constant.
static LogicalResult translateArange(Arguments &a, Values &results) {
  ImplicitLocOpBuilder &b = a.op.builder();
  bool isReal = llvm::any_of(ArrayRef<StringRef>{"start", "end", "step"},
                             [&](StringRef name) { return isa_and_present<FloatAttr>(a.attribute(name)); });
  Type type = newType(a, isReal ? Type(b.getF32Type()) : Type(b.getI64Type()));
  if (isReal) {
    double start = a.number("start", 0), end = a.number("end", 0), step = a.number("step", 1);
    double length = std::ceil((end - start) / step);
    if (!a.attribute("end") || step == 0 || !std::isfinite(start) || !std::isfinite(end) || !std::isfinite(step))
      return a.op.error() << "a floating-point range must have constant, finite bounds and a step other than 0";
    // PyTorch truncates the bounds for some integer types before it computes the length, and after it for others.
    if (!isa<FloatType>(type))
      return a.op.error() << "a range of " << type << " has floating-point bounds, expected integers";
    if (length > static_cast<double>(frontend::maxTensorElements))
      return a.op.error() << "range from " << start << " to " << end << " is too long";
    OpFoldResult count = b.getIndexAttr(length > 0 ? static_cast<int64_t>(length) : 0);
    results.push_back(frontend::generate(b, {count}, {}, type, [&](OpBuilder &nested, Location loc, ValueRange at) {
      Type wide = nested.getF64Type();
      Value i = frontend::convert(nested, loc, at[0], wide);
      Value distance = frontend::mul(nested, loc, i, frontend::makeNumber(nested, loc, wide, step));
      Value value = frontend::add(nested, loc, frontend::makeNumber(nested, loc, wide, start), distance);
      return frontend::convert(nested, loc, value, type);
    }));
    return success();
  }
  FailureOr<OpFoldResult> start = a.size("start", 0), end = a.size("end", 0), step = a.size("step", 1);
  if (failed(start) || failed(end) || failed(step))
    return failure();
  return append(frontend::makeRange(a.op, *start, *end, *step, type), results);
}

/// Converts to and from floats of 8 bits by way of f32, as PyTorch does.
static FailureOr<Value> convertElements(Arguments &a, Value tensor, Type type) {
  ImplicitLocOpBuilder &b = a.op.builder();
  Type own = elementOf(tensor);
  if (own != type && (frontend::isStoredFloat(own) || frontend::isStoredFloat(type))) {
    if (!isa<FloatType>(own) || !isa<FloatType>(type))
      return a.op.error() << "it converts " << own << " to " << type << ", expected floats";
    tensor = frontend::castElements(b, tensor, b.getF32Type());
  }
  return frontend::castElements(b, tensor, type);
}

/// Converts a tensor to `dtype` or the type of `other`.
static LogicalResult translateConvert(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  Type type = elementOf(*tensor);
  if (Value other = a.tensor("other"))
    type = elementOf(other);
  return append(convertElements(a, *tensor, a.type("dtype", type)), results);
}

/// Identity, and dropout in inference mode.
static LogicalResult translateIdentity(Arguments &a, Values &results) {
  Value tensor = a.tensor("self") ? a.tensor("self") : a.tensor("input");
  if (!tensor)
    return a.op.error() << "the argument 'self' is missing";
  if (double p = a.number("p", 0.5); a.flag("train") && p != 0)
    return a.op.error() << "dropout in training is not supported: call eval() on the module";
  results.push_back(tensor);
  return success();
}

/// Converts and broadcasts `src` to the type and shape of `self`.
static LogicalResult translateCopy(Arguments &a, Values &results) {
  ImplicitLocOpBuilder &b = a.op.builder();
  FailureOr<Value> tensor = a.required("self"), source = a.required("src");
  if (failed(tensor) || failed(source))
    return failure();
  if (failed(frontend::requireBroadcastTo(a.op, *source, tensor->getType())))
    return failure();
  FailureOr<Value> converted = convertElements(a, *source, elementOf(*tensor));
  if (failed(converted))
    return failure();
  results.push_back(converted->getType() == tensor->getType()
                        ? *converted
                        : frontend::broadcastTo(b, *converted, frontend::extentsOf(b, *tensor)));
  return success();
}

/// Drops run-time assertions.
static LogicalResult dropAssertion(Arguments &a, Values &) {
  a.ignoreRest();
  return success();
}

void torch::addCreations(frontend::Frontend &frontend) {
  add(frontend, "aten.arange", translateArange);
  add(frontend, "aten.copy", translateCopy);
  for (StringRef name : {"aten.fill", "aten.full", "aten.full_like", "aten.new_full", "aten.scalar_tensor"})
    add(frontend, name, translateFull);
  // The elements of empty tensors are unspecified.
  for (StringRef name : {"aten.empty", "aten.empty_like", "aten.new_empty", "aten.new_ones", "aten.new_zeros",
                         "aten.ones", "aten.ones_like", "aten.zero", "aten.zeros", "aten.zeros_like"})
    add(frontend, name, translateConstant);
  for (StringRef name : {"aten._to_copy", "aten.to", "aten.type_as"})
    add(frontend, name, translateConvert);
  for (StringRef name : {"aten.alias", "aten.clone", "aten.contiguous", "aten.detach", "aten.dropout",
                         "aten.lift_fresh_copy", "aten.native_dropout"})
    add(frontend, name, translateIdentity);
  for (StringRef name : {"aten._assert_async", "aten._assert_scalar", "aten._assert_tensor_metadata",
                         "aten.sym_constrain_range", "aten.sym_constrain_range_for_size"})
    add(frontend, name, dropAssertion);
}
