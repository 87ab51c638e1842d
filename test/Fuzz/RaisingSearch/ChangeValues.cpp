//===- ChangeValues.cpp - Near misses that change a value at one use ------===//
#include "Mutator.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::search;

Value Mutator::constant(Type type, double value) {
  Type element = getElementTypeOrSelf(type);
  TypedAttr attribute = isa<FloatType>(element) ? TypedAttr(b.getFloatAttr(element, value))
                                                : TypedAttr(b.getIntegerAttr(element, int64_t(value)));
  if (auto shaped = dyn_cast<RankedTensorType>(type))
    attribute = DenseElementsAttr::get(shaped, Attribute(attribute));
  return arith::ConstantOp::create(b, function.getLoc(), attribute);
}

double Mutator::drawNumber(bool mayHide) {
  static const double numbers[] = {0, 0, 1, 1, -1, 0.5, 2, -2, 3, 0.1, 10, 100, -100, 1e-9, -1e4, -1e9, -INFINITY};
  return random.pick(mayHide ? ArrayRef(numbers) : ArrayRef(numbers).drop_back(3));
}

/// A truth value at the insertion point of `b`, inside the body of a generic op.
Value Mutator::drawCondition() {
  Location loc = function.getLoc();
  auto generic = dyn_cast_or_null<linalg::GenericOp>(b.getInsertionBlock()->getParentOp());
  if (!generic || generic.getNumLoops() == 0)
    return {};
  auto draw = [&]() -> Value {
    if (random.chance(0.3))
      return arith::ConstantIndexOp::create(b, loc, int64_t(random.below(3)));
    return linalg::IndexOp::create(b, loc, random.below(generic.getNumLoops()));
  };
  Value lhs = draw(), rhs = draw();
  auto predicate = arith::CmpIPredicate(random.below(10));
  return arith::CmpIOp::create(b, loc, predicate, lhs, rhs);
}

Value Mutator::changeReal(Value value, std::string &what) {
  Location loc = function.getLoc();
  Type type = value.getType();
  unsigned kind = random.below(11);
  double number = drawNumber(/*mayHide=*/kind == 1 || kind == 4 || kind > 8);
  switch (kind) {
  case 0:
    what = "times " + std::to_string(number);
    return arith::MulFOp::create(b, loc, value, constant(type, number));
  case 1:
    what = "plus " + std::to_string(number);
    return arith::AddFOp::create(b, loc, value, constant(type, number));
  case 2:
    what = std::to_string(number) + " minus it";
    return arith::SubFOp::create(b, loc, constant(type, number), value);
  case 3:
    what = "negated";
    return arith::NegFOp::create(b, loc, value);
  case 4:
    what = "maximum with " + std::to_string(number);
    return arith::MaximumFOp::create(b, loc, value, constant(type, number));
  case 5:
    what = "absolute";
    return math::AbsFOp::create(b, loc, value);
  case 6:
    what = "tanh";
    return math::TanhOp::create(b, loc, value);
  case 7:
    what = "exp";
    return math::ExpOp::create(b, loc, value);
  case 8:
    what = "squared";
    return arith::MulFOp::create(b, loc, value, value);
  default:
    what = "selected, else " + std::to_string(number);
    if (Value condition = drawCondition()) {
      Value other = constant(type, number);
      bool isSwapped = random.chance(0.5);
      return arith::SelectOp::create(b, loc, condition, isSwapped ? other : value, isSwapped ? value : other);
    }
    return {};
  }
}

Value Mutator::changeInteger(Value value, std::string &what) {
  Location loc = function.getLoc();
  Type type = value.getType();
  if (type.isInteger(1)) {
    what = "inverted or joined";
    Value other = random.chance(0.4) ? constant(type, 1) : drawCondition();
    if (!other)
      return {};
    switch (random.below(3)) {
    case 0:
      return arith::XOrIOp::create(b, loc, value, other);
    case 1:
      return arith::AndIOp::create(b, loc, value, other);
    default:
      return arith::OrIOp::create(b, loc, value, other);
    }
  }
  // Flags must stay 0 or 1.
  switch (isa<BlockArgument>(value) ? 1 : random.below(4)) {
  case 0:
    what = "plus 1";
    return arith::AddIOp::create(b, loc, value, constant(type, 1));
  case 1:
    what = "1 minus it";
    return arith::SubIOp::create(b, loc, constant(type, 1), value);
  case 2:
    what = "times 2";
    return arith::MulIOp::create(b, loc, value, constant(type, 2));
  default: {
    what = "narrowed";
    Type narrow = b.getIntegerType(random.chance(0.7) ? 2 : 1);
    bool isSigned = random.chance(0.5);
    if (type.isIndex()) {
      value = arith::IndexCastOp::create(b, loc, narrow, value);
      return isSigned ? arith::IndexCastOp::create(b, loc, type, value).getResult()
                      : arith::IndexCastUIOp::create(b, loc, type, value).getResult();
    }
    value = arith::TruncIOp::create(b, loc, narrow, value);
    return isSigned ? arith::ExtSIOp::create(b, loc, type, value).getResult()
                    : arith::ExtUIOp::create(b, loc, type, value).getResult();
  }
  }
}

Value Mutator::change(Value value, std::string &what) {
  return isa<FloatType>(value.getType())  ? changeReal(value, what)
         : value.getType().isIntOrIndex() ? changeInteger(value, what)
                                          : Value();
}

/// A scalar op on one operand in a body.
std::string Mutator::changedUse() {
  OpOperand *use = pickUse([](OpOperand &operand) {
    return isa<linalg::GenericOp>(operand.getOwner()->getParentOp()) && operand.get().getType().isIntOrIndexOrFloat();
  });
  if (!use)
    return "";
  b.setInsertionPoint(use->getOwner());
  std::string what;
  Value changed = change(use->get(), what);
  if (!changed)
    return "";
  use->set(changed);
  return "operand " + std::to_string(use->getOperandNumber()) + " of " + nameOf(use->getOwner()) + ": " + what;
}

/// A pointwise op on one use of a tensor.
std::string Mutator::changedTensor() {
  OpOperand *use = pickUse([](OpOperand &operand) {
    auto type = dyn_cast<RankedTensorType>(operand.get().getType());
    return type && type.getRank() > 0;
  });
  if (!use)
    return "";
  Value tensor = use->get();
  auto type = cast<RankedTensorType>(tensor.getType());
  Location loc = function.getLoc();
  b.setInsertionPoint(use->getOwner());
  SmallVector<Value> inputs = {tensor};
  SmallVector<Value> others = valuesBefore(use->getOwner(), type);
  bool isJoined = isa<FloatType>(type.getElementType()) && random.chance(0.3);
  if (isJoined)
    inputs.push_back(random.pick(others));
  Value empty = tensor::EmptyOp::create(b, loc, tensor::getMixedSizes(b, loc, tensor), type.getElementType());
  SmallVector<AffineMap> maps(inputs.size() + 1, b.getMultiDimIdentityMap(type.getRank()));
  SmallVector<utils::IteratorType> kinds(type.getRank(), utils::IteratorType::parallel);
  std::string what;
  auto generic =
      linalg::GenericOp::create(b, loc, type, inputs, empty, maps, kinds, [&](OpBuilder &, Location, ValueRange) {});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(generic.getBlock());
  Value first = generic.getBlock()->getArgument(0), changed;
  if (isJoined) {
    Value second = generic.getBlock()->getArgument(1);
    what = "joined with another tensor";
    switch (random.below(3)) {
    case 0:
      changed = arith::AddFOp::create(b, loc, first, second);
      break;
    case 1:
      changed = arith::SubFOp::create(b, loc, first, second);
      break;
    default:
      changed = arith::MulFOp::create(b, loc, first, second);
    }
  } else {
    changed = change(first, what);
  }
  if (!changed)
    return "";
  linalg::YieldOp::create(b, loc, changed);
  use->set(generic.getResult(0));
  return "operand " + std::to_string(use->getOperandNumber()) + " of " + nameOf(use->getOwner()) + ": " + what;
}

/// A use of a tensor reads other elements of it: repeated, transposed or broadcast ones.
std::string Mutator::otherShape() {
  OpOperand *use = pickUse([](OpOperand &operand) {
    auto type = dyn_cast<RankedTensorType>(operand.get().getType());
    return type && type.getRank() > 0 && type.hasStaticShape();
  });
  if (!use)
    return "";
  Location loc = function.getLoc();
  auto type = cast<RankedTensorType>(use->get().getType());
  ArrayRef<int64_t> shape = type.getShape();
  unsigned rank = type.getRank(), dim = random.below(rank);
  b.setInsertionPoint(use->getOwner());
  SmallVector<AffineExpr> index;
  for (unsigned i = 0; i < rank; ++i)
    index.push_back(b.getAffineDimExpr(i));
  std::string where = " of operand " + std::to_string(use->getOperandNumber()) + " of " + nameOf(use->getOwner());
  if (random.chance(0.3)) {
    std::swap(index[dim], random.pick(index));
    SmallVector<int64_t> extents;
    for (AffineExpr each : index)
      extents.push_back(shape[cast<AffineDimExpr>(each).getPosition()]);
    if (extents != shape)
      return "";
    use->set(reindex(use->get(), index, shape));
    return "transposed dimensions" + where;
  }
  int64_t part = shape[dim];
  SmallVector<int64_t> divisors;
  for (int64_t divisor = 2; divisor <= part; ++divisor)
    if (part % divisor == 0)
      divisors.push_back(divisor);
  if (divisors.empty())
    return "";
  int64_t group = random.pick(divisors);
  part /= group;
  SmallVector<OpFoldResult> offsets(rank, b.getIndexAttr(0)), strides(rank, b.getIndexAttr(1)), sizes;
  for (int64_t extent : shape)
    sizes.push_back(b.getIndexAttr(extent));
  sizes[dim] = b.getIndexAttr(part);
  Value slice = tensor::ExtractSliceOp::create(b, loc, use->get(), offsets, sizes, strides);
  // Each element `group` times, or all elements `group` times.
  bool isTiled = random.chance(0.3);
  use->set(repeat(slice, dim, group, isTiled));
  return (isTiled ? "tiled dimension " : "repeated dimension ") + std::to_string(dim) + where;
}
