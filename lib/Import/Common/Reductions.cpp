//===- Reductions.cpp - Reductions, norms and scans -----------------------===//
#include "saccade/Import/Common/Reductions.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "saccade/Import/Common/Functions.h"
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
