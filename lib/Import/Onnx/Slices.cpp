//===- Slices.cpp - ONNX's operators that take tensors apart and join them ----===//
#include "Onnx.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using door::Extents;

/// A bound of a slice in 0 ... extent (backwards −1 ... extent − 1), from one that may count from the end.
static int64_t clampBound(int64_t bound, int64_t extent, int64_t step) {
  if (bound < 0)
    bound += extent;
  return step > 0 ? std::clamp<int64_t>(bound, 0, extent) : std::clamp<int64_t>(bound, -1, extent - 1);
}

static LogicalResult translateSlice(DoorOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 5)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  auto type = cast<RankedTensorType>(op.operand(0).getType());
  auto bounds = [&](unsigned i, StringRef name) -> FailureOr<SmallVector<OpFoldResult>> {
    if (op.operand(i))
      return requireExtents(op, i, name);
    if (std::optional<SmallVector<int64_t>> given = op.integers(name))
      return getAsIndexOpFoldResult(b.getContext(), *given);
    return op.error() << name << " are missing";
  };
  FailureOr<SmallVector<OpFoldResult>> starts = bounds(1, "starts");
  if (failed(starts))
    return failure();
  FailureOr<SmallVector<OpFoldResult>> ends = bounds(2, "ends");
  if (failed(ends))
    return failure();
  auto givenAxes = integersOf(op, 3, "axes"), givenSteps = integersOf(op, 4, "steps");
  if (failed(givenAxes) || failed(givenSteps))
    return failure();
  FailureOr<SmallVector<int64_t>> axes =
      resolveAxes(op, givenAxes->value_or(llvm::to_vector(llvm::seq<int64_t>(0, starts->size()))), type.getRank());
  if (failed(axes))
    return failure();
  SmallVector<int64_t> given = givenSteps->value_or(SmallVector<int64_t>(axes->size(), 1));
  if (starts->size() != axes->size() || ends->size() != axes->size() || given.size() != axes->size())
    return op.error() << "found " << starts->size() << " starts, " << ends->size() << " ends, " << axes->size()
                      << " axes and " << given.size() << " steps, wanted as many of each";

  SmallVector<OpFoldResult> offsets(type.getRank(), b.getIndexAttr(0)), sizes = door::extentsOf(b, op.operand(0));
  SmallVector<int64_t> steps(type.getRank(), 1);
  for (auto [axis, start, end, step] : llvm::zip(*axes, *starts, *ends, given)) {
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
    if (step != 1)
      return op.error() << "steps along an extent that only the run time knows are not supported";
    // min(max(bound (+ extent), 0), extent), for bounds of which only the sign of constants is known.
    OpFoldResult extent = sizes[axis];
    auto clamp = [&](OpFoldResult bound) -> OpFoldResult {
      std::optional<int64_t> constant = getConstantIntValue(bound);
      if (constant == 0)
        return bound;
      if (constant && *constant >= std::numeric_limits<int32_t>::max())
        return extent;
      Value whole = getValueOrCreateConstantIndexOp(b, b.getLoc(), extent);
      Value value = getValueOrCreateConstantIndexOp(b, b.getLoc(), bound);
      Value zero = arith::ConstantIndexOp::create(b, 0);
      Value isNegative = door::compare(b, b.getLoc(), arith::CmpIPredicate::slt, value, zero);
      value = door::select(b, b.getLoc(), isNegative, door::add(b, b.getLoc(), value, whole), value);
      value = door::maximum(b, b.getLoc(), door::minimum(b, b.getLoc(), value, whole), zero);
      return getAsOpFoldResult(value);
    };
    offsets[axis] = clamp(start);
    OpFoldResult size = door::subtractExtents(b, clamp(end), offsets[axis]);
    if (auto value = dyn_cast<Value>(size))
      size = getAsOpFoldResult(door::maximum(b, b.getLoc(), value, arith::ConstantIndexOp::create(b, 0)));
    sizes[axis] = size;
  }
  results.push_back(door::slice(b, op.operand(0), offsets, sizes, steps));
  return success();
}

static LogicalResult translateConcat(DoorOp &op, Values &results) {
  SmallVector<Value> inputs = op.operands();
  if (inputs.empty() || llvm::is_contained(inputs, Value()))
    return op.error() << "an input is missing";
  int64_t rank = rankOf(inputs[0]);
  FailureOr<int64_t> axis = resolveAxis(op, op.integer("axis", 1), rank);
  if (failed(axis))
    return failure();
  auto first = cast<RankedTensorType>(inputs[0].getType());
  for (Value input : inputs) {
    auto type = cast<RankedTensorType>(input.getType());
    bool fits = type.getRank() == rank && type.getElementType() == first.getElementType();
    for (int64_t i = 0; fits && i < rank; ++i)
      fits = i == *axis || type.isDynamicDim(i) || first.isDynamicDim(i) || type.getDimSize(i) == first.getDimSize(i);
    if (!fits)
      return op.error() << type << " and " << first << " differ beside axis " << *axis;
  }
  results.push_back(door::concat(op.builder(), inputs, *axis));
  return success();
}

static LogicalResult translateSplit(DoorOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 2)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  auto type = cast<RankedTensorType>(op.operand(0).getType());
  FailureOr<int64_t> axis = resolveAxis(op, op.integer("axis", 0), type.getRank());
  auto given = integersOf(op, 1, "split");
  if (failed(axis) || failed(given))
    return failure();
  int64_t parts = op.getOperation()->getNumResults(), extent = type.getDimSize(*axis);
  SmallVector<int64_t> sizes = given->value_or(SmallVector<int64_t>());
  if (!*given) {
    if (ShapedType::isDynamic(extent))
      return op.error() << "dimension " << *axis << " of " << type << " must be static to be split evenly";
    int64_t chunk = llvm::divideCeil(extent, parts);
    for (int64_t i = 0; i < parts; ++i)
      sizes.push_back(std::clamp<int64_t>(extent - i * chunk, 0, chunk));
  }
  int64_t sum = 0;
  for (int64_t size : sizes)
    if (size < 0 || llvm::AddOverflow(sum, size, sum))
      return op.error() << "a part has " << size << " elements";
  if (static_cast<int64_t>(sizes.size()) != parts || (!ShapedType::isDynamic(extent) && sum != extent))
    return op.error() << "dimension " << *axis << " of " << type << " cannot be split into " << parts
                      << " results, the parts given are " << sizes.size() << " of " << sum << " elements together";
  int64_t at = 0;
  for (int64_t size : sizes) {
    Extents extents = door::extentsOf(b, op.operand(0));
    SmallVector<OpFoldResult> offsets(extents.size(), b.getIndexAttr(0));
    offsets[*axis] = b.getIndexAttr(at);
    extents[*axis] = b.getIndexAttr(size);
    SmallVector<int64_t> steps(extents.size(), 1);
    results.push_back(door::slice(b, op.operand(0), offsets, extents, steps));
    at += size;
  }
  return success();
}

static LogicalResult translatePad(DoorOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 4)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  if (StringRef mode = op.text("mode", "constant"); mode != "constant")
    return op.error() << "the mode '" << mode << "' is not supported";
  Value tensor = op.operand(0);
  int64_t rank = rankOf(tensor);
  SmallVector<OpFoldResult> pads;
  if (std::optional<SmallVector<int64_t>> old = op.integers("pads")) {
    pads = getAsIndexOpFoldResult(b.getContext(), *old);
  } else {
    FailureOr<Extents> extents = requireExtents(op, 1, "pads");
    if (failed(extents))
      return failure();
    pads = *extents;
  }
  auto given = integersOf(op, 3, "axes");
  if (failed(given))
    return failure();
  FailureOr<SmallVector<int64_t>> axes =
      resolveAxes(op, given->value_or(llvm::to_vector(llvm::seq<int64_t>(0, rank))), rank);
  if (failed(axes))
    return failure();
  if (pads.size() != 2 * axes->size())
    return op.error() << "found " << pads.size() << " pads, wanted " << 2 * axes->size();
  SmallVector<OpFoldResult> before(rank, b.getIndexAttr(0)), behind(before);
  for (auto [i, axis] : llvm::enumerate(*axes)) {
    before[axis] = pads[i];
    behind[axis] = pads[axes->size() + i];
    int64_t extent = cast<RankedTensorType>(tensor.getType()).getDimSize(axis);
    std::optional<int64_t> low = getConstantIntValue(pads[i]), high = getConstantIntValue(behind[axis]);
    if (low && high && !ShapedType::isDynamic(extent) && *low + *high + extent < 0)
      return op.error() << "the pads take more than all of dimension " << axis << " of " << tensor.getType();
  }
  Type element = elementOf(tensor);
  Value value = op.operand(2) ? Value(tensor::ExtractOp::create(b, door::reshape(b, op.operand(2), {}), ValueRange()))
                              : door::makeNumber(b, b.getLoc(), element, op.number("value", 0));
  if (value.getType() != element)
    return op.error() << "the value is " << value.getType() << ", wanted " << element;
  results.push_back(door::pad(b, tensor, before, behind, value));
  return success();
}

/// Elements on one side of a diagonal, 0 on the other.
static LogicalResult translateTrilu(DoorOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 2)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value tensor = op.operand(0);
  int64_t rank = rankOf(tensor);
  if (rank < 2)
    return op.error() << "found " << tensor.getType() << ", wanted matrices";
  OpFoldResult diagonal = b.getIndexAttr(0);
  if (op.operand(1)) {
    FailureOr<OpFoldResult> extent = requireExtent(op, 1, "the diagonal");
    if (failed(extent))
      return failure();
    diagonal = *extent;
  }
  bool keepsUpper = op.integer("upper", 1) != 0;
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) {
    Value distance = door::sub(nested, loc, x[rank - 1], x[rank - 2]);
    Value k = getValueOrCreateConstantIndexOp(nested, loc, diagonal);
    using Predicate = arith::CmpIPredicate;
    Value keeps = door::compare(nested, loc, keepsUpper ? Predicate::sge : Predicate::sle, distance, k);
    return door::select(nested, loc, keeps, x.back(), door::makeNumber(nested, loc, x.back().getType(), 0));
  };
  results.push_back(door::generate(b, door::extentsOf(b, tensor), tensor, elementOf(tensor), body));
  return success();
}

void onnx::addSlices(door::Door &door) {
  door.translators["Concat"] = translateConcat;
  door.translators["Pad"] = translatePad;
  door.translators["Slice"] = translateSlice;
  door.translators["Split"] = translateSplit;
  door.translators["Trilu"] = translateTrilu;
}
