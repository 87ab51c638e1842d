//===- Convolution.cpp - Convolutions with checked operands ---------------===//
#include "saccade/Import/Common/Convolution.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Import/Common/Reductions.h"
#include "saccade/Import/Common/Requirements.h"
#include "saccade/Import/Common/Shapes.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::frontend;

namespace {
/// One spatial dimension of a convolution.
struct Axis {
  int64_t kernel, stride, dilation, before, after, extra;

  /// The distance of the first and the last element of a window.
  int64_t span() const { return dilation * (kernel - 1); }
  /// Whether windows neither overlap nor leave elements of `extent` out.
  bool isPartition(int64_t extent) const {
    return stride == kernel && dilation == 1 && before == 0 && after == 0 && extent % kernel == 0;
  }
};
} // namespace

/// Larger parameters, for which there is no memory, could overflow the arithmetic on positions.
static constexpr int64_t maxParameter = int64_t(1) << 31;

/// The parameter lists as one `Axis` per spatial dimension.
static FailureOr<SmallVector<Axis>> readAxes(FrontendOp &op, ArrayRef<int64_t> kernel,
                                             const ConvolutionParams &params) {
  auto list = [&](ArrayRef<int64_t> given, int64_t missing) {
    return given.empty() ? SmallVector<int64_t>(kernel.size(), missing) : llvm::to_vector(given);
  };
  SmallVector<int64_t> strides = list(params.strides, 1), dilations = list(params.dilations, 1),
                       before = list(params.before, 0), after = list(params.after, 0), extra = list(params.extra, 0);
  for (auto [name, each] :
       {std::pair("strides", &strides), std::pair("dilations", &dilations), std::pair("paddings", &before),
        std::pair("paddings", &after), std::pair("output paddings", &extra)})
    if (each->size() != kernel.size())
      return op.error() << "found " << each->size() << " " << name << ", expected " << kernel.size();
  SmallVector<Axis> axes;
  for (size_t i = 0; i < kernel.size(); ++i) {
    int64_t window;
    if (strides[i] < 1 || dilations[i] < 1)
      return op.error() << "found the stride " << strides[i] << " and the dilation " << dilations[i]
                        << ", expected at least 1";
    if (before[i] < 0 || after[i] < 0 || extra[i] < 0)
      return op.error() << "a padding is negative";
    if (std::max({strides[i], before[i], after[i], extra[i]}) > maxParameter ||
        llvm::MulOverflow(dilations[i], kernel[i], window) || window > maxParameter)
      return op.error() << "a stride, a padding or the extent of a window is too large, expected at most "
                        << maxParameter;
    axes.push_back({kernel[i], strides[i], dilations[i], before[i], after[i], extra[i]});
  }
  return axes;
}

/// The extent of the result along `axis`. An image that is smaller than a window is an error, or gives an empty result
/// if its extent is dynamic.
static FailureOr<OpFoldResult> resultExtent(FrontendOp &op, OpFoldResult extent, const Axis &axis, bool isTransposed) {
  ImplicitLocOpBuilder &b = op.builder();
  auto number = [&](int64_t value) { return OpFoldResult(b.getIndexAttr(value)); };
  OpFoldResult result;
  if (isTransposed) {
    OpFoldResult last = multiplyExtents(b, {subtractExtents(b, extent, number(1)), number(axis.stride)});
    result = addExtents(b, last, number(axis.span() + axis.extra + 1 - axis.before - axis.after));
  } else {
    // The last start of a window; negative numbers are divided to -1 or less.
    OpFoldResult last = addExtents(b, extent, number(axis.before + axis.after - axis.span() - 1));
    result = addExtents(b, divideExtents(b, last, number(axis.stride)), number(1));
  }
  std::optional<int64_t> known = getConstantIntValue(result);
  if (!known)
    return getAsOpFoldResult(maximum(b, b.getLoc(), cast<Value>(result), arith::ConstantIndexOp::create(b, 0)));
  if (*known < 1)
    return op.error() << "the image has the extent " << *getConstantIntValue(extent)
                      << ", which is smaller than the filters";
  return result;
}

/// The position in the image of element `k` of the window of the result element `o`, and whether it is inside.
static std::pair<Value, Value> imagePosition(OpBuilder &b, Location loc, const Axis &axis, Value o, Value k,
                                             Value extent, bool isTransposed) {
  using Predicate = arith::CmpIPredicate;
  auto number = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(b, loc, value); };
  Value offset = mul(b, loc, k, number(axis.dilation)), zero = number(0), position, isInside;
  if (isTransposed) {
    // Element y of the image adds to y · stride − before + offset.
    Value distance = sub(b, loc, add(b, loc, o, number(axis.before)), offset);
    Value isHit = compare(b, loc, Predicate::eq, arith::RemSIOp::create(b, loc, distance, number(axis.stride)), zero);
    position = arith::DivSIOp::create(b, loc, distance, number(axis.stride));
    isInside = arith::AndIOp::create(b, loc, isHit, compare(b, loc, Predicate::sge, distance, zero));
  } else {
    position = sub(b, loc, add(b, loc, mul(b, loc, o, number(axis.stride)), offset), number(axis.before));
    isInside = compare(b, loc, Predicate::sge, position, zero);
  }
  isInside = arith::AndIOp::create(b, loc, isInside, compare(b, loc, Predicate::slt, position, extent));
  return {position, isInside};
}

/// The windows of an image [n, groups, c, ...], as [n, groups, result extents ..., c, kernel ...]; elements outside of
/// the image are 0.
static Value windowsOf(ImplicitLocOpBuilder &b, Value image, ArrayRef<Axis> axes, ArrayRef<OpFoldResult> result,
                       bool isTransposed) {
  Extents extents = extentsOf(b, image), loops = {extents[0], extents[1]};
  llvm::append_range(loops, result);
  loops.push_back(extents[2]);
  for (const Axis &axis : axes)
    loops.push_back(b.getIndexAttr(axis.kernel));
  Type element = getElementTypeOrSelf(image.getType());
  if (llvm::any_of(extents, [](OpFoldResult each) { return isConstantIntValue(each, 0); }))
    return splat(b, loops, element, 0);
  auto body = [&](OpBuilder &nested, Location loc, ValueRange at) -> Value {
    size_t rank = axes.size();
    SmallVector<Value> position = {at[0], at[1], at[2 + rank]};
    Value isInside, zero = arith::ConstantIndexOp::create(nested, loc, 0);
    for (auto [i, axis] : llvm::enumerate(axes)) {
      Value extent = getValueOrCreateConstantIndexOp(nested, loc, extents[3 + i]);
      auto [own, isIn] = imagePosition(nested, loc, axis, at[2 + i], at[3 + rank + i], extent, isTransposed);
      if (axis.before == 0 && axis.after == 0 && !isTransposed) {
        position.push_back(own);
        continue;
      }
      position.push_back(select(nested, loc, isIn, own, zero));
      isInside = isInside ? arith::AndIOp::create(nested, loc, isInside, isIn).getResult() : isIn;
    }
    Value value = tensor::ExtractOp::create(nested, loc, image, position);
    return isInside ? select(nested, loc, isInside, value, makeNumber(nested, loc, element, 0)) : value;
  };
  return generate(b, loops, {}, element, body);
}

/// The windows of an image [n, c, ...] that partition it, as [n, 1, result extents ..., c, kernel ...]: only reshapes.
static Value partitionOf(ImplicitLocOpBuilder &b, Value image, ArrayRef<Axis> axes, ArrayRef<OpFoldResult> result) {
  Extents extents = extentsOf(b, image), cut = {extents[0], b.getIndexAttr(1), extents[1]};
  SmallVector<int64_t> order = {0, 1};
  for (auto [i, axis, extent] : llvm::enumerate(axes, result)) {
    order.push_back(cut.size());
    cut.append({extent, b.getIndexAttr(axis.kernel)});
  }
  order.push_back(2);
  for (size_t i = 0; i < axes.size(); ++i)
    order.push_back(4 + 2 * i);
  return transpose(b, reshape(b, image, cut), order);
}

/// product [n, m, ...] + bias [m], as elements of `element`.
static FailureOr<Value> addBias(FrontendOp &op, Value product, Value bias, int64_t filters, Type element) {
  ImplicitLocOpBuilder &b = op.builder();
  SmallVector<Value> inputs = {product};
  if (bias) {
    auto type = cast<RankedTensorType>(bias.getType());
    if (type.getRank() != 1 || type.getElementType() != element ||
        failed(requireEqual(op, type.getDimSize(0), filters, "elements of the bias")))
      return op.error() << "the bias is " << type << ", expected one " << element << " per filter";
    Extents column(rankOf(product) - 1, b.getIndexAttr(1));
    column.front() = b.getIndexAttr(filters);
    inputs.push_back(reshape(b, bias, column));
  }
  Type sum = elementOf(product);
  return elementwise(b, inputs, element, [&](OpBuilder &nested, Location loc, ValueRange in) {
    Value value = bias ? add(nested, loc, in[0], convert(nested, loc, in[1], sum)) : in[0];
    return convert(nested, loc, value, element);
  });
}

FailureOr<Value> frontend::convolve(FrontendOp &op, Value image, Value filters, Value bias, ConvolutionParams params) {
  ImplicitLocOpBuilder &b = op.builder();
  auto type = cast<RankedTensorType>(image.getType()), filter = cast<RankedTensorType>(filters.getType());
  int64_t rank = type.getRank() - 2, groups = params.groups;
  Type element = type.getElementType();
  if (rank < 1 || rank > 3 || filter.getRank() != type.getRank() || element != filter.getElementType() ||
      !isa<FloatType>(element))
    return op.error() << "cannot convolve " << type << " and " << filter
                      << ", expected one to three spatial dimensions";
  if (type.isDynamicDim(1) || !filter.hasStaticShape() || filter.getNumElements() == 0)
    return op.error() << "the channels of " << type << " and the filters " << filter << " must be static and not empty";
  int64_t channels = type.getDimSize(1);
  if (groups < 1 || channels % groups != 0 || (!params.isTransposed && filter.getDimSize(0) % groups != 0))
    return op.error() << "found " << groups << " groups, expected a divisor of the " << channels
                      << " channels and of the number of filters";
  if (failed(requireEqual(op, filter.getDimSize(params.isTransposed ? 0 : 1),
                          params.isTransposed ? channels : channels / groups, "channels of the filters")))
    return failure();
  FailureOr<SmallVector<Axis>> axes = readAxes(op, filter.getShape().drop_front(2), params);
  if (failed(axes))
    return failure();
  Extents extents = extentsOf(b, image), spatial;
  bool isPartition = groups == 1 && !params.isTransposed;
  for (auto [axis, extent] : llvm::zip(*axes, ArrayRef(extents).drop_front(2))) {
    FailureOr<OpFoldResult> own = resultExtent(op, extent, axis, params.isTransposed);
    if (failed(own))
      return failure();
    spatial.push_back(*own);
    std::optional<int64_t> known = getConstantIntValue(extent);
    isPartition &= known && axis.isPartition(*known);
  }

  int64_t perGroup = params.isTransposed ? filter.getDimSize(1) : filter.getDimSize(0) / groups;
  int64_t depth = channels / groups;
  for (const Axis &axis : *axes)
    depth *= axis.kernel;
  OpFoldResult group = b.getIndexAttr(groups), columns = b.getIndexAttr(perGroup), inner = b.getIndexAttr(depth);
  OpFoldResult rows = multiplyExtents(b, spatial);
  Value windows;
  if (isPartition) {
    windows = partitionOf(b, image, *axes, spatial);
  } else {
    Extents split(extents);
    split[1] = b.getIndexAttr(channels / groups);
    split.insert(split.begin() + 1, group);
    windows = windowsOf(b, reshape(b, image, split), *axes, spatial, params.isTransposed);
  }
  windows = reshape(b, windows, {extents[0], group, rows, inner});
  if (params.isTransposed) {
    // [c, m, ...] as [groups, c, m, ...], then as [groups, m, c, ...].
    Extents split = {group, b.getIndexAttr(channels / groups), columns};
    SmallVector<int64_t> order = {0, 2, 1};
    for (int64_t i = 0; i < rank; ++i) {
      split.push_back(b.getIndexAttr((*axes)[i].kernel));
      order.push_back(3 + i);
    }
    filters = transpose(b, reshape(b, filters, split), order);
  }
  Value matrices = reshape(b, filters, {group, columns, inner});
  AffineExpr n, g, p, m, k;
  bindDims(b.getContext(), n, g, m, p, k);
  auto map = [&](ArrayRef<AffineExpr> dims) { return AffineMap::get(5, 0, dims, b.getContext()); };
  Value product = contract(b, windows, matrices, map({n, g, p, k}), map({g, m, k}), map({n, g, m, p}),
                           {extents[0], group, columns, rows, inner}, getAccumulatorType(element));
  Extents result = {extents[0], b.getIndexAttr(groups * perGroup)};
  llvm::append_range(result, spatial);
  return addBias(op, reshape(b, product, result), bias, groups * perGroup, element);
}

LogicalResult frontend::padToSameSize(FrontendOp &op, Value image, Value filters, ConvolutionParams &params,
                                      bool isLower) {
  auto type = cast<RankedTensorType>(image.getType()), filter = cast<RankedTensorType>(filters.getType());
  if (type.getRank() < 3 || filter.getRank() != type.getRank() || !filter.hasStaticShape())
    return success(); // `convolve` reports it
  params.before.clear();
  params.after.clear();
  for (int64_t i = 0; i < type.getRank() - 2; ++i) {
    auto at = [&](ArrayRef<int64_t> list) { return i < static_cast<int64_t>(list.size()) ? list[i] : 1; };
    int64_t stride = std::max<int64_t>(at(params.strides), 1), extent = type.getDimSize(2 + i);
    int64_t window;
    if (llvm::MulOverflow(at(params.dilations), filter.getDimSize(2 + i), window) ||
        std::max(window, stride) > maxParameter)
      return success(); // `convolve` reports it
    int64_t total = window - at(params.dilations);
    if (stride != 1) {
      if (ShapedType::isDynamic(extent))
        return op.error() << "padding to the same size with a stride needs a static image, found " << type;
      total = std::max<int64_t>(total + 1 + (llvm::divideCeil(extent, stride) - 1) * stride - extent, 0);
    }
    int64_t smaller = total / 2;
    params.before.push_back(isLower ? total - smaller : smaller);
    params.after.push_back(isLower ? smaller : total - smaller);
  }
  return success();
}
