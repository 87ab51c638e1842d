//===- Concats.cpp - PyTorch concatenation, padding and roll operators ----===//
#include "Torch.h"
#include "saccade/Import/Common/Views.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;

/// Converts tensors to the type that all of them are promoted to.
static void convertToCommon(Arguments &a, MutableArrayRef<Value> tensors) {
  SmallVector<TensorOrScalar> numbers(tensors.begin(), tensors.end());
  Type type = promote(a.op.builder().getContext(), numbers);
  for (Value &each : tensors)
    each = frontend::castElements(a.op.builder(), each, type);
}

/// Concatenates tensors after promotion to a common type.
static FailureOr<Value> join(Arguments &a, ArrayRef<Value> given, int64_t axis) {
  SmallVector<Value> tensors(given);
  convertToCommon(a, tensors);
  if (failed(frontend::requireConcatenable(a.op, tensors, axis)))
    return failure();
  return frontend::concat(a.op.builder(), tensors, axis);
}

static LogicalResult translateCat(Arguments &a, Values &results) {
  SmallVector<Value> tensors = a.list("tensors");
  if (tensors.empty() || llvm::is_contained(tensors, Value()))
    return a.op.error() << "the argument 'tensors' is missing";
  // torch.cat ignores empty 1-D tensors, but for their types.
  convertToCommon(a, tensors);
  auto isEmptyTensor = [](Value each) {
    return rankOf(each) == 1 && cast<RankedTensorType>(each.getType()).getDimSize(0) == 0;
  };
  if (!llvm::all_of(tensors, isEmptyTensor))
    llvm::erase_if(tensors, isEmptyTensor);
  FailureOr<int64_t> axis = a.axis("dim", 0, rankOf(tensors.front()));
  return failed(axis) ? failure() : append(join(a, tensors, *axis), results);
}

static LogicalResult translateStack(Arguments &a, Values &results) {
  SmallVector<Value> tensors = a.list("tensors");
  if (tensors.empty() || llvm::is_contained(tensors, Value()))
    return a.op.error() << "the argument 'tensors' is missing";
  FailureOr<int64_t> axis = a.axis("dim", 0, rankOf(tensors.front()) + 1);
  if (failed(axis))
    return failure();
  for (Value &each : tensors) {
    if (rankOf(each) != rankOf(tensors.front()) && each != tensors.front())
      return a.op.error() << "found " << each.getType() << ", expected tensors of one shape";
    if (rankOf(each) + 1 <= *axis)
      return a.op.error() << "found " << each.getType() << ", expected tensors of one shape";
  }
  for (Value &each : tensors)
    each = frontend::unsqueeze(a.op.builder(), each, *axis);
  return append(join(a, tensors, *axis), results);
}

/// Rotates elements along a dimension.
static FailureOr<Value> rollAlong(Arguments &a, Value tensor, int64_t axis, OpFoldResult shift) {
  ImplicitLocOpBuilder &b = a.op.builder();
  OpFoldResult extent = frontend::extentsOf(b, tensor)[axis];
  std::optional<int64_t> size = getConstantIntValue(extent), by = getConstantIntValue(shift);
  if (!by)
    return a.op.error() << "'shifts' must be constant";
  if (size && *size == 0)
    return tensor;
  // The split point is `by` elements before the end, modulo the extent.
  auto value = [&](OpFoldResult extent) { return getValueOrCreateConstantIndexOp(b, b.getLoc(), extent); };
  Value around = frontend::maximum(b, b.getLoc(), value(extent), value(b.getIndexAttr(1)));
  OpFoldResult cut =
      getAsOpFoldResult(frontend::mod(b, b.getLoc(), value(b.getIndexAttr(-*by)), around, /*truncated=*/false));
  if (isConstantIntValue(cut, 0))
    return tensor;
  OpFoldResult end = b.getIndexAttr(std::numeric_limits<int64_t>::max());
  FailureOr<Value> front = frontend::sliceBetween(a.op, tensor, frontend::SliceBounds{axis, cut, end});
  FailureOr<Value> back = frontend::sliceBetween(a.op, tensor, frontend::SliceBounds{axis, b.getIndexAttr(0), cut});
  if (failed(front) || failed(back))
    return failure();
  return frontend::concat(b, {*front, *back}, axis);
}

static LogicalResult translateRoll(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  FailureOr<Extents> shifts = a.requiredSizes("shifts");
  if (failed(tensor) || failed(shifts))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  auto given = a.integers("dims");
  if (!given || given->empty()) {
    if (shifts->size() != 1)
      return a.op.error() << "found " << shifts->size() << " shifts for the flattened tensor, expected 1";
    Extents extents = frontend::extentsOf(b, *tensor);
    FailureOr<Value> flat =
        rollAlong(a, frontend::reshape(b, *tensor, {frontend::multiplyExtents(b, extents)}), 0, shifts->front());
    return failed(flat) ? failure() : append(frontend::reshape(b, *flat, extents), results);
  }
  FailureOr<SmallVector<int64_t>> axes = a.axes("dims", rankOf(*tensor));
  if (failed(axes))
    return failure();
  if (axes->size() != shifts->size())
    return a.op.error() << "found " << shifts->size() << " shifts, expected one for each of " << axes->size()
                        << " dimensions";
  FailureOr<Value> result = *tensor;
  for (auto [axis, shift] : llvm::zip(*axes, *shifts)) {
    result = rollAlong(a, *result, axis, shift);
    if (failed(result))
      return failure();
  }
  return append(result, results);
}

static LogicalResult translateFlip(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  FailureOr<SmallVector<int64_t>> axes = a.axes("dims", rankOf(*tensor));
  if (failed(axes))
    return failure();
  if (auto given = a.integers("dims"); given && given->empty())
    axes->clear();
  Extents offsets(rankOf(*tensor), b.getIndexAttr(0)), sizes = frontend::extentsOf(b, *tensor);
  SmallVector<int64_t> steps(rankOf(*tensor), 1);
  for (int64_t axis : *axes) {
    steps[axis] = -1;
    offsets[axis] = frontend::subtractExtents(b, sizes[axis], b.getIndexAttr(1));
  }
  results.push_back(axes->empty() ? *tensor : frontend::slice(b, *tensor, offsets, sizes, steps));
  return success();
}

/// Pads are (before, after) pairs, those of the last dimension first.
static LogicalResult translatePad(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  FailureOr<Extents> pads = a.requiredSizes("pad");
  if (failed(tensor) || failed(pads))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  if (StringRef mode = a.text("mode", "constant"); mode != "constant")
    return a.op.error() << "the mode '" << mode << "' is not supported";
  TensorOrScalar given = tensorOrScalar(a, "value");
  if (isa_and_present<Value>(given))
    return a.op.error() << "'value' must be a constant number";
  Attribute filling = given.isNull() ? Attribute(b.getI64IntegerAttr(0)) : cast<Attribute>(given);
  int64_t rank = rankOf(*tensor), padded = pads->size() / 2;
  if (pads->size() % 2 || padded > rank)
    return a.op.error() << "found " << pads->size() << " pads for " << tensor->getType()
                        << ", expected two per padded dimension";
  SmallVector<OpFoldResult> before(rank, b.getIndexAttr(0)), after(before);
  bool isUnpadded = true;
  for (int64_t i = 0; i < padded; ++i) {
    OpFoldResult low = before[rank - 1 - i] = (*pads)[2 * i], high = after[rank - 1 - i] = (*pads)[2 * i + 1];
    isUnpadded &= isConstantIntValue(low, 0) && isConstantIntValue(high, 0);
    std::optional<int64_t> first = getConstantIntValue(low), last = getConstantIntValue(high);
    int64_t extent = cast<RankedTensorType>(tensor->getType()).getDimSize(rank - 1 - i);
    if (first && last && !ShapedType::isDynamic(extent) && *first + *last + extent < 0)
      return a.op.error() << "the pads crop dimension " << rank - 1 - i << " of " << tensor->getType()
                          << " to a negative extent";
  }
  if (isUnpadded) {
    results.push_back(*tensor);
    return success();
  }
  Type element = elementOf(*tensor);
  Value value = arith::ConstantOp::create(b, elementAttr(filling, element));
  results.push_back(frontend::pad(b, *tensor, before, after, value));
  return success();
}

/// Differences of adjacent elements, after concatenating `prepend` and `append`.
static LogicalResult translateDiff(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  FailureOr<int64_t> axis = a.axis("dim", -1, rankOf(*tensor));
  if (failed(axis))
    return failure();
  if (a.integer("n", 1) != 1)
    return a.op.error() << "'n' is " << a.integer("n", 1) << ", expected 1";
  SmallVector<Value> parts = {*tensor};
  if (Value front = a.tensor("prepend"))
    parts.insert(parts.begin(), front);
  if (Value back = a.tensor("append"))
    parts.push_back(back);
  FailureOr<Value> whole = join(a, parts, *axis);
  if (failed(whole))
    return failure();
  OpFoldResult end = b.getIndexAttr(std::numeric_limits<int64_t>::max()), one = b.getIndexAttr(1);
  FailureOr<Value> later = frontend::sliceBetween(a.op, *whole, frontend::SliceBounds{*axis, one, end});
  OpFoldResult extent = frontend::extentsOf(b, *whole)[*axis];
  FailureOr<Value> earlier = frontend::sliceBetween(
      a.op, *whole, frontend::SliceBounds{*axis, b.getIndexAttr(0), frontend::subtractExtents(b, extent, one)});
  if (failed(later) || failed(earlier))
    return failure();
  results.push_back(frontend::elementwise(b, {*later, *earlier}, elementOf(*whole),
                                          [](OpBuilder &nested, Location loc, ValueRange x) {
                                            if (x[0].getType().isInteger(1))
                                              return nested.createOrFold<arith::XOrIOp>(loc, x[0], x[1]);
                                            return frontend::sub(nested, loc, x[0], x[1]);
                                          }));
  return success();
}

void torch::addConcats(frontend::Frontend &frontend) {
  for (StringRef name : {"aten.constant_pad_nd", "aten.pad"})
    add(frontend, name, translatePad);
  add(frontend, "aten.cat", translateCat);
  add(frontend, "aten.diff", translateDiff);
  add(frontend, "aten.flip", translateFlip);
  add(frontend, "aten.roll", translateRoll);
  add(frontend, "aten.stack", translateStack);
}
