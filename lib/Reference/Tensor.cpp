//===- Tensor.cpp - Tensors, boxes and rounding --------------------------------===//
#include "saccade/Reference/Tensor.h"
#include "Cells.h"
#include "saccade/Support/ElementType.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>
#include <numeric>

using namespace mlir;
using namespace saccade::reference;

static int64_t product(ArrayRef<int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t(1), std::multiplies<>());
}

Box Box::whole(ArrayRef<int64_t> shape) { return {SmallVector<int64_t>(shape.size(), 0), SmallVector<int64_t>(shape)}; }

int64_t Box::size() const { return product(sizes); }

Tensor::Tensor(Type elementType, ArrayRef<int64_t> shape)
    : elementType(elementType), shape(shape), values(product(shape), Scalar{}) {
  if (isReal())
    values.assign(values.size(), Scalar{.real = 0.0});
}

Tensor Tensor::ofReals(Type elementType, ArrayRef<int64_t> shape, ArrayRef<double> reals) {
  Tensor tensor(elementType, shape);
  assert(tensor.isReal() && tensor.size() == int64_t(reals.size()));
  for (auto [value, real] : llvm::zip_equal(tensor.values, reals))
    value.real = real;
  return tensor;
}

Tensor Tensor::ofIntegers(Type elementType, ArrayRef<int64_t> shape, ArrayRef<int64_t> integers) {
  Tensor tensor(elementType, shape);
  assert(!tensor.isReal() && tensor.size() == int64_t(integers.size()));
  for (auto [value, integer] : llvm::zip_equal(tensor.values, integers))
    value.integer = integer;
  return tensor;
}

Tensor saccade::reference::gather(const Tensor &tensor, ArrayRef<Box> boxes) {
  Tensor gathered(tensor.elementType, {0});
  SmallVector<int64_t> strides = rowMajorStrides(tensor.shape);
  for (const Box &box : boxes)
    forEachRow(box, strides, [&](int64_t first, int64_t length) {
      gathered.values.insert(gathered.values.end(), tensor.values.begin() + first,
                             tensor.values.begin() + first + length);
    });
  gathered.shape[0] = gathered.values.size();
  return gathered;
}

SmallVector<int64_t> saccade::reference::positionInTensor(ArrayRef<Box> boxes, int64_t position) {
  for (const Box &box : boxes) {
    if (position >= box.size()) {
      position -= box.size();
      continue;
    }
    SmallVector<int64_t> index(box.rank());
    for (int64_t dim = box.rank() - 1; dim >= 0; --dim) {
      index[dim] = box.offsets[dim] + position % box.sizes[dim];
      position /= box.sizes[dim];
    }
    return index;
  }
  llvm_unreachable("position is out of range");
}

/// Rounds to a multiple of the ulp of `value` in the format. Scaling by powers of two is exact, so only nearbyint
/// rounds.
static double roundToFormat(double value, int precision, int minExponent, int maxExponent) {
  if (value == 0 || !std::isfinite(value))
    return value;
  int exponent = std::max(std::ilogb(value), minExponent);
  double unit = std::ldexp(1.0, exponent - (precision - 1));
  double rounded = std::nearbyint(value / unit) * unit;
  double limit = std::ldexp(1.0, maxExponent + 1);
  return std::abs(rounded) < limit ? rounded : std::copysign(INFINITY, value);
}

double saccade::reference::roundTo(Type type, double value) {
  if (type.isF64())
    return value;
  if (type.isF32())
    return static_cast<float>(value);
  if (type.isF16() || type.isBF16()) {
    const llvm::fltSemantics &semantics = cast<FloatType>(type).getFloatSemantics();
    return roundToFormat(value, APFloat::semanticsPrecision(semantics), APFloat::semanticsMinExponent(semantics),
                         APFloat::semanticsMaxExponent(semantics));
  }
  APFloat number(isa<Float8E4M3FNType>(type) ? saturateToF8E4M3FN(value) : value);
  bool losesInfo;
  number.convert(cast<FloatType>(type).getFloatSemantics(), APFloat::rmNearestTiesToEven, &losesInfo);
  number.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &losesInfo);
  return number.convertToDouble();
}

double saccade::reference::epsilonOf(Type type) {
  return std::ldexp(1.0, 1 - int(APFloat::semanticsPrecision(cast<FloatType>(type).getFloatSemantics())));
}
