//===- Reductions.cpp - ONNX's reductions, softmax and norms ------------------===//
#include "Onnx.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using door::Extents;

namespace {

/// Σ of what `before` makes of elements, or their maximum and so on; then `after`.
struct Reduction {
  enum Start { Zero, One, Least, Largest } start;
  Value (*combine)(OpBuilder &, Location, Value, Value);
  Value (*before)(OpBuilder &, Location, Value) = nullptr;
  Value (*after)(OpBuilder &, Location, Value) = nullptr;
  bool isMean = false;
};

} // namespace

static Value absolute(OpBuilder &b, Location loc, Value x) {
  return isa<FloatType>(x.getType()) ? b.createOrFold<math::AbsFOp>(loc, x) : b.createOrFold<math::AbsIOp>(loc, x);
}
static Value square(OpBuilder &b, Location loc, Value x) { return door::mul(b, loc, x, x); }
static Value exponential(OpBuilder &b, Location loc, Value x) { return b.createOrFold<math::ExpOp>(loc, x); }
static Value logarithm(OpBuilder &b, Location loc, Value x) { return b.createOrFold<math::LogOp>(loc, x); }
static Value squareRoot(OpBuilder &b, Location loc, Value x) { return b.createOrFold<math::SqrtOp>(loc, x); }

static const llvm::StringMap<Reduction> &getTable() {
  static const llvm::StringMap<Reduction> table = {
      {"ReduceL1", {Reduction::Zero, door::add, absolute}},
      {"ReduceL2", {Reduction::Zero, door::add, square, squareRoot}},
      {"ReduceLogSum", {Reduction::Zero, door::add, nullptr, logarithm}},
      {"ReduceLogSumExp", {Reduction::Zero, door::add, exponential, logarithm}},
      {"ReduceMax", {Reduction::Least, door::maximum}},
      {"ReduceMean", {Reduction::Zero, door::add, nullptr, nullptr, /*isMean=*/true}},
      {"ReduceMin", {Reduction::Largest, door::minimum}},
      {"ReduceProd", {Reduction::One, door::mul}},
      {"ReduceSum", {Reduction::Zero, door::add}},
      {"ReduceSumSquare", {Reduction::Zero, door::add, square}},
  };
  return table;
}

/// The type that sums of `element` are made in.
static Type sumType(Type element) {
  return element.isF16() || element.isBF16() ? Float32Type::get(element.getContext()) : element;
}

/// The product of some extents, as a number of `type`.
static Value countOf(ImplicitLocOpBuilder &b, Value tensor, ArrayRef<int64_t> dims, Type type) {
  Extents extents = door::extentsOf(b, tensor);
  auto reduced = llvm::map_to_vector(dims, [&](int64_t dim) { return extents[dim]; });
  Value count = getValueOrCreateConstantIndexOp(b, b.getLoc(), door::multiplyExtents(b, reduced));
  return door::convert(b, b.getLoc(), count, type);
}

static Value reduceBy(ImplicitLocOpBuilder &b, const Reduction &reduction, Value tensor, ArrayRef<int64_t> dims,
                      bool keep) {
  Type element = elementOf(tensor);
  bool isExtreme = reduction.start >= Reduction::Least;
  Type type = isExtreme ? element : sumType(element);
  TypedAttr start = isExtreme ? door::extremeAttr(type, reduction.start == Reduction::Largest)
                              : door::numberAttr(type, reduction.start == Reduction::One);
  Value sum = door::reduce(b, tensor, dims, keep, start, [&](OpBuilder &nested, Location loc, ValueRange x) {
    Value value = reduction.before ? reduction.before(nested, loc, x[0]) : x[0];
    return reduction.combine(nested, loc, value, x[1]);
  });
  if (!reduction.after && !reduction.isMean)
    return door::castElements(b, sum, element);
  Value count = reduction.isMean ? countOf(b, tensor, dims, type) : nullptr;
  return door::elementwise(b, sum, element, [&](OpBuilder &nested, Location loc, ValueRange x) {
    Value value = reduction.isMean ? door::div(nested, loc, x[0], count) : reduction.after(nested, loc, x[0]);
    return door::convert(nested, loc, value, element);
  });
}

/// log Σ e^x as m + log Σ e^(x − m) with the maximum m, or 0 where that is infinite.
static Value logSumExp(ImplicitLocOpBuilder &b, const Reduction &reduction, Value tensor, ArrayRef<int64_t> dims,
                       bool keep) {
  Type element = elementOf(tensor), type = sumType(element);
  Value wide = door::castElements(b, tensor, type);
  auto finiteMaximum = [&](bool keeps) {
    Value largest = reduceBy(b, {Reduction::Least, door::maximum}, wide, dims, keeps);
    return door::elementwise(b, largest, type, [&](OpBuilder &nested, Location loc, ValueRange x) {
      Value zero = door::makeNumber(nested, loc, type, 0), isFinite = math::IsFiniteOp::create(nested, loc, x[0]);
      return door::select(nested, loc, isFinite, x[0], zero);
    });
  };
  Value shifted = door::elementwise(b, {wide, finiteMaximum(true)}, type,
                                    [](OpBuilder &nested, Location loc, ValueRange x) {
                                      return door::sub(nested, loc, x[0], x[1]);
                                    });
  Value sum = reduceBy(b, reduction, shifted, dims, keep);
  return door::elementwise(b, {sum, finiteMaximum(keep)}, element, [&](OpBuilder &nested, Location loc, ValueRange x) {
    return door::convert(nested, loc, door::add(nested, loc, x[0], x[1]), element);
  });
}

static LogicalResult translateReduction(DoorOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 2)))
    return failure();
  const Reduction &reduction = getTable().find(op.getName())->second;
  Value tensor = op.operand(0);
  int64_t rank = rankOf(tensor);
  Type element = elementOf(tensor);
  if (!isa<FloatType>(element) && reduction.after)
    return op.error() << "found elements of " << element << ", wanted floating point";
  if (element.isInteger(1) && reduction.start < Reduction::Least)
    return op.error() << "found elements of bool, wanted numbers";
  auto given = integersOf(op, 1, "axes");
  if (failed(given))
    return failure();
  if ((!*given || (*given)->empty()) && op.integer("noop_with_empty_axes", 0)) {
    results.push_back(tensor);
    return success();
  }
  SmallVector<int64_t> all = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  FailureOr<SmallVector<int64_t>> dims = resolveAxes(op, *given && !(*given)->empty() ? **given : all, rank);
  if (failed(dims))
    return failure();
  bool keep = op.integer("keepdims", 1) != 0;
  results.push_back(op.getName() == "ReduceLogSumExp" ? logSumExp(op.builder(), reduction, tensor, *dims, keep)
                                                      : reduceBy(op.builder(), reduction, tensor, *dims, keep));
  return success();
}

static LogicalResult translateSoftmax(DoorOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 1)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value tensor = op.operand(0);
  bool isOld = opsetOf(op) < 13;
  if (!isa<FloatType>(elementOf(tensor)))
    return op.error() << "found elements of " << elementOf(tensor) << ", wanted floating point";
  FailureOr<int64_t> axis = resolveAxis(op, op.integer("axis", isOld ? 1 : -1), rankOf(tensor));
  if (failed(axis))
    return failure();
  if (!isOld || *axis == rankOf(tensor) - 1) {
    results.push_back(door::softmax(b, tensor, *axis));
    return success();
  }
  // Before version 13 all dimensions from the axis on were one.
  Extents extents = door::extentsOf(b, tensor), joined(ArrayRef(extents).take_front(*axis));
  joined.push_back(door::multiplyExtents(b, ArrayRef(extents).drop_front(*axis)));
  results.push_back(door::reshape(b, door::softmax(b, door::reshape(b, tensor, joined), *axis), extents));
  return success();
}

/// x − max − log Σ e^(x − max)
static LogicalResult translateLogSoftmax(DoorOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 1)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value tensor = op.operand(0);
  Type element = elementOf(tensor), type = sumType(element);
  if (!isa<FloatType>(element) || opsetOf(op) < 13)
    return op.error() << "found elements of " << element << " in version " << opsetOf(op)
                      << ", wanted floating point in version 13 or later";
  FailureOr<int64_t> axis = resolveAxis(op, op.integer("axis", -1), rankOf(tensor));
  if (failed(axis))
    return failure();
  Value wide = door::castElements(b, tensor, type);
  Value largest = reduceBy(b, {Reduction::Least, door::maximum}, wide, *axis, /*keep=*/true);
  Value shifted = door::elementwise(b, {wide, largest}, type, [](OpBuilder &nested, Location loc, ValueRange x) {
    return door::sub(nested, loc, x[0], x[1]);
  });
  Value sum = reduceBy(b, {Reduction::Zero, door::add, exponential, logarithm}, shifted, *axis, /*keep=*/true);
  results.push_back(door::elementwise(b, {shifted, sum}, element, [&](OpBuilder &nested, Location loc, ValueRange x) {
    return door::convert(nested, loc, door::sub(nested, loc, x[0], x[1]), element);
  }));
  return success();
}

/// Sums of all elements up to each one, as models count the tokens that are no padding: a masked sum for each.
static LogicalResult translateCumSum(DoorOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 2)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value tensor = op.operand(0);
  std::optional<SmallVector<int64_t>> given = door::constantIntegers(op.operand(1));
  if (!given || given->size() != 1 || elementOf(tensor).isInteger(1))
    return op.error() << "the axis must be one constant, and elements numbers";
  FailureOr<int64_t> axis = resolveAxis(op, given->front(), rankOf(tensor));
  if (failed(axis))
    return failure();
  bool isExclusive = op.integer("exclusive", 0) != 0, isReversed = op.integer("reverse", 0) != 0;
  int64_t rank = rankOf(tensor);
  Extents extents = door::extentsOf(b, tensor);
  Type element = elementOf(tensor), type = sumType(element);
  // Loops over the result, then over what is summed.
  SmallVector<AffineExpr> from, to;
  for (int64_t i = 0; i < rank; ++i) {
    from.push_back(b.getAffineDimExpr(i == *axis ? rank : i));
    to.push_back(b.getAffineDimExpr(i));
  }
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  iterators.push_back(utils::IteratorType::reduction);
  // A second input of the result's extent says how far its positions go.
  Value init = door::splat(b, extents, type, 0);
  Value own =
      door::generate(b, {extents[*axis]}, {}, b.getI64Type(), [&](OpBuilder &nested, Location loc, ValueRange x) {
        return door::convert(nested, loc, x[0], nested.getI64Type());
      });
  auto map = [&](ArrayRef<AffineExpr> dims) { return AffineMap::get(rank + 1, 0, dims, b.getContext()); };
  AffineMap maps[] = {map(from), map(b.getAffineDimExpr(*axis)), map(b.getAffineDimExpr(rank)), map(to)};
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) {
    using Predicate = arith::CmpIPredicate;
    Value first = isReversed ? x[1] : x[2], last = isReversed ? x[2] : x[1];
    Value counts = door::compare(nested, loc, isExclusive ? Predicate::slt : Predicate::sle, first, last);
    Value value = door::convert(nested, loc, x[0], type);
    value = door::select(nested, loc, counts, value, door::makeNumber(nested, loc, type, 0));
    linalg::YieldOp::create(nested, loc, door::add(nested, loc, x[3], value));
  };
  Value sums = linalg::GenericOp::create(b, TypeRange{init.getType()}, ValueRange{tensor, own, own}, ValueRange{init},
                                         maps, iterators, body)
                   .getResult(0);
  results.push_back(door::castElements(b, sums, element));
  return success();
}

//===- Norms --------------------------------------------------------------===//

/// (x − mean) / √(variance + ε) · scale + bias over the dimensions from an axis on, or x / √(mean of squares + ε) ·
/// scale, in f32 at least. Further results, as LayerNormalization has them: the mean and 1 / √(variance + ε).
static LogicalResult translateNorm(DoorOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 3)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value tensor = op.operand(0), scale = op.operand(1), bias = op.operand(2);
  bool centres = op.getName() == "LayerNormalization";
  Type element = elementOf(tensor);
  if (!isa<FloatType>(element))
    return op.error() << "found elements of " << element << ", wanted floating point";
  FailureOr<int64_t> axis = resolveAxis(op, op.integer("axis", -1), rankOf(tensor));
  if (failed(axis) || failed(requireBroadcast(op, op.operands())))
    return failure();
  // Scale and bias are broadcast to the input, never the input to them.
  for (Value factor : {scale, bias}) {
    if (!factor)
      continue;
    auto from = cast<RankedTensorType>(factor.getType()).getShape(), to = cast<RankedTensorType>(tensor.getType()).getShape();
    bool isLarger = from.size() > to.size();
    for (auto [extent, wanted] : llvm::zip(llvm::reverse(from), llvm::reverse(to)))
      isLarger |= wanted == 1 && extent != 1;
    if (isLarger)
      return op.error() << "found a scale or bias of " << factor.getType() << ", wanted one that is broadcast to "
                        << tensor.getType();
  }
  SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(*axis, rankOf(tensor)));
  Type type = sumType(element);
  Value wide = door::castElements(b, tensor, type);
  const Reduction mean{Reduction::Zero, door::add, nullptr, nullptr, /*isMean=*/true};
  const Reduction meanSquare{Reduction::Zero, door::add, square, nullptr, /*isMean=*/true};
  Value centre = centres ? reduceBy(b, mean, wide, dims, /*keep=*/true) : nullptr;
  Value centred = wide;
  if (centres)
    centred = door::elementwise(b, {wide, centre}, type, [](OpBuilder &nested, Location loc, ValueRange x) {
      return door::sub(nested, loc, x[0], x[1]);
    });
  Value variance = reduceBy(b, meanSquare, centred, dims, /*keep=*/true);
  double epsilon = op.number("epsilon", 1e-5);
  Value inverse = door::elementwise(b, variance, type, [&](OpBuilder &nested, Location loc, ValueRange x) {
    Value sum = door::add(nested, loc, x[0], door::makeNumber(nested, loc, type, epsilon));
    return nested.createOrFold<math::RsqrtOp>(loc, sum);
  });
  SmallVector<Value> inputs = {centred, inverse, scale};
  if (bias)
    inputs.push_back(bias);
  results.push_back(door::elementwise(b, inputs, element, [&](OpBuilder &nested, Location loc, ValueRange x) {
    Value value = door::mul(nested, loc, x[0], x[1]);
    value = door::mul(nested, loc, value, door::convert(nested, loc, x[2], type));
    if (bias)
      value = door::add(nested, loc, value, door::convert(nested, loc, x[3], type));
    return door::convert(nested, loc, value, element);
  }));
  if (centres) {
    results.push_back(centre);
    results.push_back(inverse);
  }
  return success();
}

void onnx::addReductions(door::Door &door) {
  for (const auto &entry : getTable())
    door.translators[entry.getKey()] = translateReduction;
  door.translators["LayerNormalization"] = translateNorm;
  door.translators["RMSNormalization"] = door.translators["SimplifiedLayerNormalization"] = translateNorm;
  door.translators["CumSum"] = translateCumSum;
  door.translators["LogSoftmax"] = translateLogSoftmax;
  door.translators["Softmax"] = translateSoftmax;
}
