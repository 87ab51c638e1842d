//===- Reductions.cpp - Reductions, norms and scans -----------------------===//
#include "saccade/Import/Common/Reductions.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "saccade/Import/Common/Functions.h"
#include "saccade/Import/Common/Requirements.h"
#include "saccade/Import/Common/Shapes.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::frontend;

static Value exponential(OpBuilder &b, Location loc, Value x) { return b.createOrFold<math::ExpOp>(loc, x); }
static Value logarithm(OpBuilder &b, Location loc, Value x) { return b.createOrFold<math::LogOp>(loc, x); }

static const Reduction maxOf{Reduction::Lowest, maximum};
static const Reduction meanOf{Reduction::Zero, add, nullptr, nullptr, /*isMean=*/true};

Type frontend::getAccumulatorType(Type element) {
  return element.isF16() || element.isBF16() ? Float32Type::get(element.getContext()) : element;
}

/// The product of the extents `dims`, as a value of `type`.
static Value countOf(ImplicitLocOpBuilder &b, Value tensor, ArrayRef<int64_t> dims, Type type) {
  Extents extents = extentsOf(b, tensor);
  auto reduced = llvm::map_to_vector(dims, [&](int64_t dim) { return extents[dim]; });
  Value count = getValueOrCreateConstantIndexOp(b, b.getLoc(), multiplyExtents(b, reduced));
  return convert(b, b.getLoc(), count, type);
}

Value frontend::reduceBy(ImplicitLocOpBuilder &b, const Reduction &reduction, Value tensor, ArrayRef<int64_t> dims,
                         bool keepDims) {
  Type element = getElementTypeOrSelf(tensor.getType());
  bool isExtreme = reduction.start >= Reduction::Lowest;
  Type type = isExtreme ? element : getAccumulatorType(element);
  TypedAttr start = isExtreme ? extremeAttr(type, reduction.start == Reduction::Highest)
                              : numberAttr(type, reduction.start == Reduction::One);
  Value sum = reduce(b, tensor, dims, keepDims, start, [&](OpBuilder &nested, Location loc, ValueRange x) {
    Value value = reduction.before ? reduction.before(nested, loc, x[0]) : x[0];
    return reduction.combine(nested, loc, value, x[1]);
  });
  if (!reduction.after && !reduction.isMean)
    return castElements(b, sum, element);
  Value count = reduction.isMean ? countOf(b, tensor, dims, type) : nullptr;
  return elementwise(b, sum, element, [&](OpBuilder &nested, Location loc, ValueRange x) {
    Value value = reduction.isMean ? div(nested, loc, x[0], count) : reduction.after(nested, loc, x[0]);
    return convert(nested, loc, value, element);
  });
}

/// x − y with broadcasting, converted to `element`.
static Value subtract(ImplicitLocOpBuilder &b, Value x, Value y, Type element) {
  return elementwise(b, {x, y}, element, [&](OpBuilder &nested, Location loc, ValueRange in) {
    return convert(nested, loc, sub(nested, loc, in[0], in[1]), element);
  });
}

Value frontend::logSumExp(ImplicitLocOpBuilder &b, Value tensor, ArrayRef<int64_t> dims, bool keepDims) {
  Type element = getElementTypeOrSelf(tensor.getType()), type = getAccumulatorType(element);
  Value wide = castElements(b, tensor, type);
  auto finiteMaximum = [&](bool keeps) {
    Value largest = reduceBy(b, maxOf, wide, dims, keeps);
    return elementwise(b, largest, type, [&](OpBuilder &nested, Location loc, ValueRange x) {
      Value zero = makeNumber(nested, loc, type, 0), isFinite = math::IsFiniteOp::create(nested, loc, x[0]);
      return select(nested, loc, isFinite, x[0], zero);
    });
  };
  Value shifted = subtract(b, wide, finiteMaximum(true), type);
  Value sum = reduceBy(b, {Reduction::Zero, add, exponential, logarithm}, shifted, dims, keepDims);
  return elementwise(b, {sum, finiteMaximum(keepDims)}, element, [&](OpBuilder &nested, Location loc, ValueRange x) {
    return convert(nested, loc, add(nested, loc, x[0], x[1]), element);
  });
}

Value frontend::variance(ImplicitLocOpBuilder &b, Value tensor, ArrayRef<int64_t> dims, bool keepDims,
                         double correction) {
  Type element = getElementTypeOrSelf(tensor.getType()), type = getAccumulatorType(element);
  Value wide = castElements(b, tensor, type);
  Value centred = subtract(b, wide, reduceBy(b, meanOf, wide, dims, /*keepDims=*/true), type);
  Value sum = reduceBy(b, {Reduction::Zero, add, square}, centred, dims, keepDims);
  Value count = countOf(b, tensor, dims, type);
  return elementwise(b, sum, element, [&](OpBuilder &nested, Location loc, ValueRange x) {
    Value divisor = sub(nested, loc, count, makeNumber(nested, loc, type, correction));
    divisor = maximum(nested, loc, divisor, makeNumber(nested, loc, type, 0));
    return convert(nested, loc, div(nested, loc, x[0], divisor), element);
  });
}

Value frontend::logSoftmax(ImplicitLocOpBuilder &b, Value tensor, int64_t axis) {
  Type element = getElementTypeOrSelf(tensor.getType()), type = getAccumulatorType(element);
  Value wide = castElements(b, tensor, type);
  Value shifted = subtract(b, wide, reduceBy(b, maxOf, wide, axis, /*keepDims=*/true), type);
  Value sum = reduceBy(b, {Reduction::Zero, add, exponential, logarithm}, shifted, axis, /*keepDims=*/true);
  return subtract(b, shifted, sum, element);
}

Value frontend::cumulativeSum(ImplicitLocOpBuilder &b, Value tensor, int64_t axis, bool isExclusive, bool isReversed) {
  Extents extents = extentsOf(b, tensor);
  int64_t rank = extents.size();
  Type element = getElementTypeOrSelf(tensor.getType()), type = getAccumulatorType(element);
  // The loops of the result, then the reduction loop.
  SmallVector<AffineExpr> from, to;
  for (int64_t i = 0; i < rank; ++i) {
    from.push_back(b.getAffineDimExpr(i == axis ? rank : i));
    to.push_back(b.getAffineDimExpr(i));
  }
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  iterators.push_back(utils::IteratorType::reduction);
  // An iota along the axis provides the positions of the element and of the result.
  Value init = splat(b, extents, type, 0);
  Value iota = generate(b, {extents[axis]}, {}, b.getI64Type(), [&](OpBuilder &nested, Location loc, ValueRange x) {
    return convert(nested, loc, x[0], nested.getI64Type());
  });
  auto map = [&](ArrayRef<AffineExpr> dims) { return AffineMap::get(rank + 1, 0, dims, b.getContext()); };
  AffineMap maps[] = {map(from), map(b.getAffineDimExpr(axis)), map(b.getAffineDimExpr(rank)), map(to)};
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) {
    using Predicate = arith::CmpIPredicate;
    Value first = isReversed ? x[1] : x[2], last = isReversed ? x[2] : x[1];
    Value counts = compare(nested, loc, isExclusive ? Predicate::slt : Predicate::sle, first, last);
    Value value = convert(nested, loc, x[0], type);
    value = select(nested, loc, counts, value, makeNumber(nested, loc, type, 0));
    linalg::YieldOp::create(nested, loc, add(nested, loc, x[3], value));
  };
  Value sums = linalg::GenericOp::create(b, TypeRange{init.getType()}, ValueRange{tensor, iota, iota}, ValueRange{init},
                                         maps, iterators, body)
                   .getResult(0);
  return castElements(b, sums, element);
}

Norm frontend::normalize(ImplicitLocOpBuilder &b, Value tensor, ArrayRef<int64_t> dims, bool subtractsMean,
                         double epsilon, Value scale, Value bias) {
  Type element = getElementTypeOrSelf(tensor.getType()), type = getAccumulatorType(element);
  Value wide = castElements(b, tensor, type);
  Value centre = subtractsMean ? reduceBy(b, meanOf, wide, dims, /*keepDims=*/true) : nullptr;
  Value centred = subtractsMean ? subtract(b, wide, centre, type) : wide;
  Value variance =
      reduceBy(b, {Reduction::Zero, add, square, nullptr, /*isMean=*/true}, centred, dims, /*keepDims=*/true);
  Value inverse = elementwise(b, variance, type, [&](OpBuilder &nested, Location loc, ValueRange x) {
    Value sum = add(nested, loc, x[0], makeNumber(nested, loc, type, epsilon));
    return nested.createOrFold<math::RsqrtOp>(loc, sum);
  });
  SmallVector<Value> inputs = {centred, inverse};
  for (Value factor : {scale, bias})
    if (factor)
      inputs.push_back(factor);
  Value result = elementwise(b, inputs, element, [&](OpBuilder &nested, Location loc, ValueRange x) {
    Value value = mul(nested, loc, x[0], x[1]);
    if (scale)
      value = mul(nested, loc, value, convert(nested, loc, x[2], type));
    if (bias)
      value = add(nested, loc, value, convert(nested, loc, x.back(), type));
    return convert(nested, loc, value, element);
  });
  return {result, centre, inverse};
}

/// Parameters [c] of the channels of a tensor [n, c, ...] as [c, 1, ...], which broadcasts to it. Null ones are left
/// out.
static FailureOr<SmallVector<Value>> alongChannels(FrontendOp &op, Value tensor, ArrayRef<Value> parameters) {
  ImplicitLocOpBuilder &b = op.builder();
  auto type = cast<RankedTensorType>(tensor.getType());
  if (type.getRank() < 2 || !isa<FloatType>(type.getElementType()))
    return op.error() << "found " << type << ", expected a floating-point tensor with channels in dimension 1";
  SmallVector<Value> columns;
  for (Value each : parameters) {
    if (!each)
      continue;
    auto own = cast<RankedTensorType>(each.getType());
    if (own.getRank() != 1 || !isa<FloatType>(own.getElementType()) ||
        failed(requireEqual(op, own.getDimSize(0), type.getDimSize(1), "channels of a parameter")))
      return op.error() << "a parameter is " << own << ", expected one number per channel of " << type;
    Extents column(type.getRank() - 1, b.getIndexAttr(1));
    column.front() = extentsOf(b, each).front();
    columns.push_back(reshape(b, each, column));
  }
  return columns;
}

FailureOr<Value> frontend::normalizeChannels(FrontendOp &op, Value tensor, Value mean, Value variance, double epsilon,
                                             Value scale, Value bias) {
  Type element = getElementTypeOrSelf(tensor.getType()), type = getAccumulatorType(element);
  FailureOr<SmallVector<Value>> columns = alongChannels(op, tensor, {mean, variance, scale, bias});
  if (failed(columns))
    return failure();
  SmallVector<Value> inputs = {tensor};
  llvm::append_range(inputs, *columns);
  return elementwise(op.builder(), inputs, element, [&](OpBuilder &b, Location loc, ValueRange in) {
    auto x = llvm::map_to_vector(in, [&](Value each) { return convert(b, loc, each, type); });
    Value sum = add(b, loc, x[2], makeNumber(b, loc, type, epsilon));
    Value value = mul(b, loc, sub(b, loc, x[0], x[1]), b.createOrFold<math::RsqrtOp>(loc, sum));
    if (scale)
      value = mul(b, loc, value, x[3]);
    if (bias)
      value = add(b, loc, value, x.back());
    return convert(b, loc, value, element);
  });
}

FailureOr<Value> frontend::normalizeGroups(FrontendOp &op, Value tensor, int64_t groups, double epsilon, Value scale,
                                           Value bias) {
  ImplicitLocOpBuilder &b = op.builder();
  FailureOr<SmallVector<Value>> columns = alongChannels(op, tensor, {scale, bias});
  if (failed(columns))
    return failure();
  auto shape = cast<RankedTensorType>(tensor.getType());
  if (groups < 1 || shape.isDynamicDim(1) || shape.getDimSize(1) % groups != 0)
    return op.error() << "found " << groups << " groups, expected a divisor of the channels of " << shape;
  Type element = shape.getElementType(), type = getAccumulatorType(element);
  Extents extents = extentsOf(b, tensor),
          split = {extents[0], b.getIndexAttr(groups), b.getIndexAttr(shape.getDimSize(1) / groups)};
  llvm::append_range(split, ArrayRef(extents).drop_front(2));
  Value grouped = reshape(b, castElements(b, tensor, type), split);
  Norm norm = normalize(b, grouped, llvm::to_vector(llvm::seq<int64_t>(2, split.size())), /*subtractsMean=*/true,
                        epsilon, nullptr, nullptr);
  SmallVector<Value> inputs = {reshape(b, norm.result, extents)};
  llvm::append_range(inputs, *columns);
  return elementwise(b, inputs, element, [&](OpBuilder &nested, Location loc, ValueRange in) {
    Value value = in[0];
    if (scale)
      value = mul(nested, loc, value, convert(nested, loc, in[1], type));
    if (bias)
      value = add(nested, loc, value, convert(nested, loc, in.back(), type));
    return convert(nested, loc, value, element);
  });
}
