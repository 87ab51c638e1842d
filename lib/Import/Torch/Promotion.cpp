//===- Promotion.cpp - PyTorch type promotion -----------------------------===//
#include "Torch.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;

TensorOrScalar torch::tensorOrScalar(const Arguments &arguments, StringRef name) {
  if (Value tensor = arguments.tensor(name))
    return tensor;
  Attribute number = arguments.attribute(name);
  bool isList = arguments.list(name).size() > 1;
  if (!isList && (!number || isa<IntegerAttr, FloatAttr>(number)))
    return number;
  arguments.refuse(name, number, "a scalar or tensor");
  return Attribute(Builder(arguments.op.getOperation()->getContext()).getI64IntegerAttr(0));
}

Type torch::promote(Type x, Type y) {
  if (!x || !y || x == y)
    return x ? x : y;
  bool isReal = isa<FloatType>(x), isOtherReal = isa<FloatType>(y);
  if (isReal != isOtherReal)
    return isReal ? x : y;
  unsigned width = x.getIntOrFloatBitWidth(), otherWidth = y.getIntOrFloatBitWidth();
  // Neither f16 nor bf16 represents all values of the other.
  if (isReal && width == otherWidth)
    return Float32Type::get(x.getContext());
  return width > otherWidth ? x : y;
}

/// Combines types of two priority classes (tensors, 0-D tensors, Python scalars): the lower one counts only if its
/// category (bool, integer, floating point) is higher.
static Type combine(Type higher, Type lower) {
  if (!higher || !lower)
    return higher ? higher : lower;
  if (isa<FloatType>(higher))
    return higher;
  return higher.isInteger(1) || isa<FloatType>(lower) ? promote(higher, lower) : higher;
}

Type torch::promote(MLIRContext *context, ArrayRef<TensorOrScalar> numbers) {
  Type dimensioned, single, plain;
  for (TensorOrScalar each : numbers) {
    if (each.isNull())
      continue;
    if (auto tensor = dyn_cast<Value>(each)) {
      Type &type = rankOf(tensor) > 0 ? dimensioned : single;
      type = promote(type, elementOf(tensor));
      continue;
    }
    auto attribute = cast<Attribute>(each);
    auto integer = dyn_cast<IntegerAttr>(attribute);
    Type type = Float32Type::get(context);
    if (integer)
      type = integer.getType().isInteger(1) ? integer.getType() : IntegerType::get(context, 64);
    plain = promote(plain, type);
  }
  return combine(dimensioned, combine(single, plain));
}

TypedAttr torch::elementAttr(Attribute number, Type type) {
  auto integer = dyn_cast<IntegerAttr>(number);
  if (!integer) {
    double real = cast<FloatAttr>(number).getValueAsDouble();
    return type.isInteger(1) ? IntegerAttr::get(type, real != 0) : frontend::numberAttr(type, real);
  }
  int64_t value =
      integer.getType().isInteger(1) ? integer.getValue().getZExtValue() : integer.getValue().getSExtValue();
  if (type.isInteger(1))
    return IntegerAttr::get(type, value != 0);
  if (isa<IntegerType>(type))
    return IntegerAttr::get(type,
                            APInt(type.getIntOrFloatBitWidth(), value, /*isSigned=*/true, /*implicitTrunc=*/true));
  return frontend::numberAttr(type, value);
}
