//===- Views.cpp - Slices, ranges and fills in frontend conventions -------===//
#include "saccade/Import/Common/Views.h"
#include "saccade/Import/Common/Elements.h"
#include "saccade/Import/Common/Requirements.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::frontend;

FailureOr<Value> frontend::reshapeInferred(FrontendOp &op, Value tensor, Extents to) {
  ImplicitLocOpBuilder &b = op.builder();
  Extents from = extentsOf(b, tensor);
  if (Extents declared = declaredExtents(op, 0); declared.size() == to.size())
    for (auto [extent, expected] : llvm::zip_equal(to, declared))
      if (expected && getConstantIntValue(extent).value_or(-1) == -1)
        extent = expected;
  std::optional<size_t> inferred;
  for (auto [i, extent] : llvm::enumerate(to)) {
    std::optional<int64_t> size = getConstantIntValue(extent);
    if (size == -1) {
      if (inferred)
        return op.error() << "extents " << *inferred << " and " << i << " of the shape are both -1";
      inferred = i;
    } else if (size && *size < 0) {
      return op.error() << "extent " << i << " of the shape is " << *size;
    }
  }
  if (inferred) {
    Extents denominator(to);
    denominator.erase(denominator.begin() + *inferred);
    std::optional<int64_t> all = countElements(from), rest = countElements(denominator);
    if (rest == 0)
      return op.error() << "cannot infer an extent of an empty shape";
    if (all && rest && *all % *rest != 0)
      return op.error() << "cannot reshape " << tensor.getType() << ": " << *all << " elements, expected a multiple of "
                        << *rest;
    to[*inferred] = divideProducts(b, from, denominator);
  }
  std::optional<int64_t> found = countElements(from), expected = countElements(to);
  if (found && expected && *found != *expected)
    return op.error() << "cannot reshape " << tensor.getType() << " to a shape of " << *expected << " elements";
  return reshape(b, tensor, to);
}

/// Normalizes a bound, which may count from the end, and clamps it to [0, extent], or to [−1, extent − 1] for negative
/// steps.
static int64_t clampBound(int64_t bound, int64_t extent, int64_t step) {
  if (bound < 0)
    bound += extent;
  return step > 0 ? std::clamp<int64_t>(bound, 0, extent) : std::clamp<int64_t>(bound, -1, extent - 1);
}

/// min(max(bound (+ extent), 0), extent) for dynamic bounds or extents.
static OpFoldResult clampToExtent(ImplicitLocOpBuilder &b, OpFoldResult bound, OpFoldResult extent) {
  std::optional<int64_t> constant = getConstantIntValue(bound);
  if (constant == 0 || bound == extent)
    return bound;
  if (constant && *constant >= std::numeric_limits<int32_t>::max())
    return extent;
  Value whole = getValueOrCreateConstantIndexOp(b, b.getLoc(), extent);
  Value value = getValueOrCreateConstantIndexOp(b, b.getLoc(), bound);
  Value zero = arith::ConstantIndexOp::create(b, 0);
  auto reuse = [&](Value made) { return getValueOrCreateConstantIndexOp(b, b.getLoc(), reuseExtent(b, made)); };
  Value isNegative = reuse(compare(b, b.getLoc(), arith::CmpIPredicate::slt, value, zero));
  value = reuse(select(b, b.getLoc(), isNegative, reuse(add(b, b.getLoc(), value, whole)), value));
  value = reuse(maximum(b, b.getLoc(), reuse(minimum(b, b.getLoc(), value, whole)), zero));
  return getAsOpFoldResult(value);
}

/// The largest step along dynamic extents, whose arithmetic it cannot overflow.
static constexpr int64_t maxStep = int64_t(1) << 31;

/// The number of elements first, first + step, … before `last`, or after it for a negative step.
static OpFoldResult countSteps(ImplicitLocOpBuilder &b, OpFoldResult first, OpFoldResult last, int64_t step) {
  OpFoldResult distance = step > 0 ? subtractExtents(b, last, first) : subtractExtents(b, first, last);
  if (int64_t width = std::abs(step); width != 1)
    distance = divideExtents(b, addExtents(b, distance, b.getIndexAttr(width - 1)), b.getIndexAttr(width));
  auto value = dyn_cast<Value>(distance);
  if (!value)
    return b.getIndexAttr(std::max<int64_t>(*getConstantIntValue(distance), 0));
  return reuseExtent(b, getAsOpFoldResult(maximum(b, b.getLoc(), value, arith::ConstantIndexOp::create(b, 0))));
}

FailureOr<Slice> frontend::computeSlice(FrontendOp &op, Value tensor, ArrayRef<SliceBounds> bounds) {
  ImplicitLocOpBuilder &b = op.builder();
  auto type = cast<RankedTensorType>(tensor.getType());
  Slice computed{Extents(type.getRank(), b.getIndexAttr(0)), extentsOf(b, tensor),
                 SmallVector<int64_t>(type.getRank(), 1)};
  auto &[offsets, sizes, steps] = computed;
  for (const auto &[axis, start, end, step] : bounds) {
    if (step == 0)
      return op.error() << "a step is 0";
    steps[axis] = step;
    std::optional<int64_t> first = getConstantIntValue(start), last = getConstantIntValue(end);
    if (!type.isDynamicDim(axis) && first && last) {
      int64_t extent = type.getDimSize(axis), from = clampBound(*first, extent, step);
      int64_t distance = (clampBound(*last, extent, step) - from) * (step > 0 ? 1 : -1);
      offsets[axis] = b.getIndexAttr(distance > 0 ? from : 0);
      sizes[axis] = b.getIndexAttr(distance > 0 ? llvm::divideCeil(distance, std::abs(step)) : 0);
      continue;
    }
    if (step > maxStep)
      return op.error() << "the step along a dynamic dimension is " << step << ", expected at most " << maxStep;
    if (step < 0)
      return op.error() << "negative steps along a dynamic dimension are not supported";
    OpFoldResult extent = sizes[axis];
    offsets[axis] = clampToExtent(b, start, extent);
    OpFoldResult to = clampToExtent(b, end, extent);
    if (to == extent && isConstantIntValue(offsets[axis], 0) && step == 1)
      continue;
    sizes[axis] = countSteps(b, offsets[axis], to, step);
  }
  return computed;
}

FailureOr<Value> frontend::sliceBetween(FrontendOp &op, Value tensor, ArrayRef<SliceBounds> bounds) {
  FailureOr<Slice> computed = computeSlice(op, tensor, bounds);
  if (failed(computed))
    return failure();
  return slice(op.builder(), tensor, computed->offsets, computed->sizes, computed->steps);
}

LogicalResult frontend::splitInto(FrontendOp &op, Value tensor, int64_t axis, ArrayRef<int64_t> sizes,
                                  SmallVectorImpl<Value> &results) {
  ImplicitLocOpBuilder &b = op.builder();
  auto type = cast<RankedTensorType>(tensor.getType());
  int64_t parts = op.getOperation()->getNumResults(), extent = type.getDimSize(axis), sum = 0;
  for (int64_t size : sizes)
    if (size < 0 || llvm::AddOverflow(sum, size, sum))
      return op.error() << "a part has " << size << " elements";
  if (static_cast<int64_t>(sizes.size()) != parts || (!ShapedType::isDynamic(extent) && sum != extent))
    return op.error() << "dimension " << axis << " of " << type << " cannot be split into " << parts
                      << " results, the parts given are " << sizes.size() << " of " << sum << " elements together";
  int64_t at = 0;
  for (int64_t size : sizes) {
    Extents extents = extentsOf(b, tensor);
    SmallVector<OpFoldResult> offsets(extents.size(), b.getIndexAttr(0));
    offsets[axis] = b.getIndexAttr(at);
    extents[axis] = b.getIndexAttr(size);
    SmallVector<int64_t> steps(extents.size(), 1);
    results.push_back(slice(b, tensor, offsets, extents, steps));
    at += size;
  }
  return success();
}

FailureOr<Value> frontend::makeRange(FrontendOp &op, OpFoldResult start, OpFoldResult end, OpFoldResult step,
                                     Type element) {
  ImplicitLocOpBuilder &b = op.builder();
  std::optional<int64_t> first = getConstantIntValue(start), limit = getConstantIntValue(end);
  std::optional<int64_t> delta = getConstantIntValue(step);
  if (!delta || *delta == 0)
    return op.error() << "the step of a range must be constant and not 0";
  OpFoldResult count;
  if (first && limit) {
    int64_t distance;
    if (*delta > 0 ? llvm::SubOverflow(*limit, *first, distance) : llvm::SubOverflow(*first, *limit, distance))
      return op.error() << "range from " << *first << " to " << *limit << " is too long";
    uint64_t width = *delta < 0 ? -uint64_t(*delta) : uint64_t(*delta);
    count = b.getIndexAttr(distance <= 0 ? 0 : llvm::divideCeil(uint64_t(distance), width));
  } else {
    if (*delta < -maxStep || *delta > maxStep)
      return op.error() << "the step of a range of dynamic length is " << *delta << ", expected at most " << maxStep;
    count = countSteps(b, start, end, *delta);
  }
  return generate(b, {count}, {}, element, [&](OpBuilder &nested, Location loc, ValueRange at) {
    Value from = getValueOrCreateConstantIndexOp(nested, loc, start);
    Value distance = arith::ConstantIndexOp::create(nested, loc, *delta);
    return convert(nested, loc, add(nested, loc, from, mul(nested, loc, at[0], distance)), element);
  });
}

FailureOr<Value> frontend::tile(FrontendOp &op, Value tensor, ArrayRef<OpFoldResult> repeats) {
  ImplicitLocOpBuilder &b = op.builder();
  Extents own = extentsOf(b, tensor), unsqueezed, broadcasted, joined;
  if (own.size() > repeats.size())
    return op.error() << "found " << repeats.size() << " repeat counts, expected one for each of " << own.size()
                      << " dimensions";
  own.insert(own.begin(), repeats.size() - own.size(), b.getIndexAttr(1));
  int64_t count = 1;
  for (auto [i, extent] : llvm::enumerate(own)) {
    int64_t times = getConstantIntValue(repeats[i]).value_or(1);
    if (times < 0)
      return op.error() << "extent " << i << " of the shape is " << times;
    for (int64_t size : {times, getConstantIntValue(extent).value_or(1)})
      if (size != 0 && (llvm::MulOverflow(count, size, count) || count > maxTensorElements))
        return op.error() << "the shape has too many elements";
    // A dimension before each is broadcast, and both are collapsed.
    unsqueezed.append({b.getIndexAttr(1), extent});
    broadcasted.append({repeats[i], extent});
    joined.push_back(multiplyExtents(b, {repeats[i], extent}));
  }
  return reshape(b, broadcastTo(b, reshape(b, tensor, unsqueezed), broadcasted), joined);
}

Value frontend::filled(ImplicitLocOpBuilder &b, ArrayRef<OpFoldResult> extents, TypedAttr value) {
  std::optional<int64_t> count = countElements(extents);
  if (count && *count <= maxFoldedElements)
    return fromElements(b, typeOf(extents, value.getType()), SmallVector<OpFoldResult>(*count, value));
  return splat(b, extents, arith::ConstantOp::create(b, value));
}

FailureOr<Value> frontend::keepTriangle(FrontendOp &op, Value tensor, OpFoldResult diagonal, bool keepsUpper) {
  ImplicitLocOpBuilder &b = op.builder();
  int64_t rank = rankOf(tensor);
  if (rank < 2)
    return op.error() << "found " << tensor.getType() << ", expected matrices";
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) {
    Value distance = sub(nested, loc, x[rank - 1], x[rank - 2]);
    Value k = getValueOrCreateConstantIndexOp(nested, loc, diagonal);
    using Predicate = arith::CmpIPredicate;
    Value keeps = compare(nested, loc, keepsUpper ? Predicate::sge : Predicate::sle, distance, k);
    return select(nested, loc, keeps, x.back(), makeNumber(nested, loc, x.back().getType(), 0));
  };
  return generate(b, extentsOf(b, tensor), tensor, elementOf(tensor), body);
}
