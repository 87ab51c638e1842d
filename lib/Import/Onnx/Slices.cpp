//===- Slices.cpp - ONNX slice, split, concat and pad operators -----------===//
#include "Onnx.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Import/Common/Views.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using frontend::Extents;

static LogicalResult translateSlice(FrontendOp &op, Values &results) {
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
                      << " axes and " << given.size() << " steps, expected the same number of each";

  SmallVector<frontend::SliceBounds> all;
  for (auto [axis, start, end, step] : llvm::zip(*axes, *starts, *ends, given))
    all.push_back({axis, start, end, step});
  return append(frontend::sliceBetween(op, op.operand(0), all), results);
}

static LogicalResult translateConcat(FrontendOp &op, Values &results) {
  SmallVector<Value> inputs = op.operands();
  if (inputs.empty() || llvm::is_contained(inputs, Value()))
    return op.error() << "an input is missing";
  int64_t rank = rankOf(inputs[0]);
  FailureOr<int64_t> axis = resolveAxis(op, op.integer("axis", 1), rank);
  if (failed(axis))
    return failure();
  if (failed(frontend::requireConcatenable(op, inputs, *axis)))
    return failure();
  results.push_back(frontend::concat(op.builder(), inputs, *axis));
  return success();
}

static LogicalResult translateSplit(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 2)))
    return failure();
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
  return frontend::splitInto(op, op.operand(0), *axis, sizes, results);
}

static LogicalResult translatePad(FrontendOp &op, Values &results) {
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
    return op.error() << "found " << pads.size() << " pads, expected " << 2 * axes->size();
  SmallVector<OpFoldResult> before(rank, b.getIndexAttr(0)), after(before);
  for (auto [i, axis] : llvm::enumerate(*axes)) {
    before[axis] = pads[i];
    after[axis] = pads[axes->size() + i];
    int64_t extent = cast<RankedTensorType>(tensor.getType()).getDimSize(axis);
    std::optional<int64_t> low = getConstantIntValue(pads[i]), high = getConstantIntValue(after[axis]);
    for (std::optional<int64_t> pad : {low, high})
      if (pad && (*pad > frontend::maxTensorElements || *pad < -frontend::maxTensorElements))
        return op.error() << "a pad is " << *pad << ", which is too large";
    if (low && high && !ShapedType::isDynamic(extent) && *low + *high + extent < 0)
      return op.error() << "the pads crop dimension " << axis << " of " << tensor.getType() << " to a negative extent";
  }
  Type element = elementOf(tensor);
  Value value = op.operand(2)
                    ? Value(tensor::ExtractOp::create(b, frontend::reshape(b, op.operand(2), {}), ValueRange()))
                    : frontend::makeNumber(b, b.getLoc(), element, op.number("value", 0));
  if (value.getType() != element)
    return op.error() << "the value is " << value.getType() << ", expected " << element;
  results.push_back(frontend::pad(b, tensor, before, after, value));
  return success();
}

/// Keeps the triangle on one side of a diagonal and sets the rest to 0.
static LogicalResult translateTrilu(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 2)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value tensor = op.operand(0);
  OpFoldResult diagonal = b.getIndexAttr(0);
  if (op.operand(1)) {
    FailureOr<OpFoldResult> extent = requireExtent(op, 1, "the diagonal");
    if (failed(extent))
      return failure();
    diagonal = *extent;
  }
  return append(frontend::keepTriangle(op, tensor, diagonal, op.integer("upper", 1) != 0), results);
}

void onnx::addSlices(frontend::Frontend &frontend) {
  frontend.translators["Concat"] = translateConcat;
  frontend.translators["Pad"] = translatePad;
  frontend.translators["Slice"] = translateSlice;
  frontend.translators["Split"] = translateSplit;
  frontend.translators["Trilu"] = translateTrilu;
}
