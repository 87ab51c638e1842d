//===- Slices.cpp - StableHLO slice, update, concatenate and pad ops ------===//
#include "StableHLO.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Import/Common/Requirements.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::stablehlo;
using frontend::Extents;

/// Slice with constant bounds, which must be in range.
static LogicalResult translateSlice(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  RankedTensorType type = typeOf(op.operand(0));
  auto starts = requireIntegers(op, "start_indices", type.getRank());
  auto limits = requireIntegers(op, "limit_indices", type.getRank());
  auto strides = requireIntegers(op, "strides", type.getRank());
  if (failed(starts) || failed(limits) || failed(strides))
    return failure();
  Extents offsets, sizes;
  for (auto [extent, start, limit, stride] : llvm::zip(type.getShape(), *starts, *limits, *strides)) {
    if (start < 0 || limit < start || stride < 1 || (!ShapedType::isDynamic(extent) && limit > extent))
      return op.error() << "the slice from " << start << " to " << limit << " by " << stride << " is out of range for "
                        << type;
    offsets.push_back(b.getIndexAttr(start));
    sizes.push_back(b.getIndexAttr(llvm::divideCeil(limit - start, stride)));
  }
  results.push_back(frontend::slice(b, op.operand(0), offsets, sizes, *strides));
  return success();
}

/// Slice with bounds computed from shapes.
static LogicalResult translateRealDynamicSlice(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 4)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  RankedTensorType type = typeOf(op.operand(0));
  auto starts = requireExtents(op, 1, "the list of starts"), limits = requireExtents(op, 2, "the list of limits");
  auto strides = requireExtents(op, 3, "the list of strides");
  if (failed(starts) || failed(limits) || failed(strides))
    return failure();
  size_t rank = type.getRank();
  if (starts->size() != rank || limits->size() != rank || strides->size() != rank)
    return op.error() << "found " << starts->size() << " starts, " << limits->size() << " limits and "
                      << strides->size() << " strides, expected one of each per dimension of " << type;
  Extents sizes;
  for (auto [start, limit, stride] : llvm::zip(*starts, *limits, *strides)) {
    if (!isConstantIntValue(stride, 1))
      return op.error() << "only strides of 1 are supported";
    sizes.push_back(frontend::subtractExtents(b, limit, start));
  }
  for (auto [extent, start, size] : llvm::zip(type.getShape(), *starts, sizes)) {
    std::optional<int64_t> first = getConstantIntValue(start), count = getConstantIntValue(size);
    if ((count && *count < 0) || (first && count && !ShapedType::isDynamic(extent) && *first + *count > extent))
      return op.error() << "a slice of " << *count << " elements is out of range for " << type;
  }
  results.push_back(frontend::slice(b, op.operand(0), *starts, sizes, SmallVector<int64_t>(rank, 1)));
  return success();
}

/// Verifies that the op has `first` operands followed by one start index per dimension of operand 0.
static LogicalResult requireStarts(FrontendOp &op, unsigned first) {
  if (!op.operand(0))
    return op.error() << "found no operand";
  return requireOperands(op, first + typeOf(op.operand(0)).getRank());
}

namespace {

/// The start indices of a slice: clamped constants, or rank-0 tensors that are not yet clamped if any is dynamic.
struct Starts {
  Extents known;
  SmallVector<Value> tensors;
  bool areKnown = true;
};

} // namespace

/// Reads the start indices, operands `first` and following, of a slice of these sizes.
static FailureOr<Starts> readStarts(FrontendOp &op, unsigned first, ArrayRef<OpFoldResult> sizes) {
  ImplicitLocOpBuilder &b = op.builder();
  Starts starts;
  for (auto [i, extent, size] : llvm::enumerate(frontend::extentsOf(b, op.operand(0)), sizes)) {
    Value start = op.operand(first + i);
    std::optional<int64_t> whole = getConstantIntValue(extent), part = getConstantIntValue(size);
    if (typeOf(start).getRank() != 0 || !isa<IntegerType>(typeOf(start).getElementType()))
      return op.error() << "start " << i << " is " << start.getType() << ", expected one integer";
    if (whole && part && *part > *whole)
      return op.error() << "a slice of " << *part << " elements is larger than the extent " << *whole;
    starts.tensors.push_back(start);
    std::optional<SmallVector<int64_t>> constant = frontend::constantIntegers(start);
    if (whole && whole == part)
      starts.known.push_back(b.getIndexAttr(0));
    else if (constant && whole && part)
      starts.known.push_back(b.getIndexAttr(std::clamp<int64_t>(constant->front(), 0, *whole - *part)));
    else
      starts.areKnown = false;
  }
  return starts;
}

/// The start indices as values, clamped so that the slice is in bounds.
static SmallVector<Value> clampStarts(OpBuilder &b, Location loc, ValueRange starts, ArrayRef<OpFoldResult> extents,
                                      ArrayRef<OpFoldResult> sizes) {
  SmallVector<Value> clamped;
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  for (auto [start, extent, size] : llvm::zip(starts, extents, sizes)) {
    Value maxStart = frontend::sub(b, loc, getValueOrCreateConstantIndexOp(b, loc, extent),
                                   getValueOrCreateConstantIndexOp(b, loc, size));
    Value at = frontend::convert(b, loc, start, b.getIndexType());
    clamped.push_back(frontend::maximum(b, loc, frontend::minimum(b, loc, at, maxStart), zero));
  }
  return clamped;
}

static LogicalResult translateDynamicSlice(FrontendOp &op, Values &results) {
  if (failed(requireStarts(op, 1)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value tensor = op.operand(0);
  int64_t rank = typeOf(tensor).getRank();
  auto sliceSizes = requireIntegers(op, "slice_sizes", rank);
  if (failed(sliceSizes))
    return failure();
  if (llvm::any_of(*sliceSizes, [](int64_t size) { return size < 0; }))
    return op.error() << "found a negative slice size";
  Extents sizes = getAsIndexOpFoldResult(b.getContext(), *sliceSizes), extents = frontend::extentsOf(b, tensor);
  FailureOr<Starts> starts = readStarts(op, 1, sizes);
  if (failed(starts))
    return failure();
  if (starts->areKnown) {
    results.push_back(frontend::slice(b, tensor, starts->known, sizes, SmallVector<int64_t>(rank, 1)));
    return success();
  }
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) -> Value {
    SmallVector<Value> position = clampStarts(nested, loc, x.drop_front(rank), extents, sizes);
    for (auto [each, i] : llvm::zip(position, x.take_front(rank)))
      each = frontend::add(nested, loc, each, i);
    return tensor::ExtractOp::create(nested, loc, tensor, position);
  };
  results.push_back(frontend::generate(b, sizes, starts->tensors, typeOf(tensor).getElementType(), body));
  return success();
}

static LogicalResult translateUpdate(FrontendOp &op, Values &results) {
  if (failed(requireStarts(op, 2)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value tensor = op.operand(0), update = op.operand(1);
  RankedTensorType type = typeOf(tensor), updateType = typeOf(update);
  int64_t rank = type.getRank();
  if (updateType.getRank() != rank || updateType.getElementType() != type.getElementType())
    return op.error() << "cannot update " << type << " with " << updateType;
  Extents sizes = frontend::extentsOf(b, update), extents = frontend::extentsOf(b, tensor);
  FailureOr<Starts> starts = readStarts(op, 2, sizes);
  if (failed(starts))
    return failure();
  // tensor.insert_slice refuses an offset at the end of a dimension, even for an empty update.
  if (llvm::is_contained(updateType.getShape(), 0)) {
    results.push_back(tensor);
    return success();
  }
  if (starts->areKnown) {
    SmallVector<OpFoldResult> strides(rank, b.getIndexAttr(1));
    results.push_back(tensor::InsertSliceOp::create(b, update, tensor, starts->known, sizes, strides));
    return success();
  }
  // Clamp the read position to the update, and select the original element outside of it.
  SmallVector<Value> inputs(starts->tensors);
  inputs.push_back(tensor);
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) -> Value {
    using Predicate = arith::CmpIPredicate;
    SmallVector<Value> first = clampStarts(nested, loc, x.slice(rank, rank), extents, sizes), position;
    Value isInside = arith::ConstantIntOp::create(nested, loc, 1, 1);
    Value zero = arith::ConstantIndexOp::create(nested, loc, 0), one = arith::ConstantIndexOp::create(nested, loc, 1);
    for (auto [i, start, extent] : llvm::zip(x.take_front(rank), first, sizes)) {
      Value own = frontend::sub(nested, loc, i, start), size = getValueOrCreateConstantIndexOp(nested, loc, extent);
      Value isIn = nested.createOrFold<arith::AndIOp>(loc, frontend::compare(nested, loc, Predicate::sge, own, zero),
                                                      frontend::compare(nested, loc, Predicate::slt, own, size));
      isInside = nested.createOrFold<arith::AndIOp>(loc, isInside, isIn);
      Value last = frontend::sub(nested, loc, size, one);
      position.push_back(frontend::maximum(nested, loc, zero, frontend::minimum(nested, loc, own, last)));
    }
    Value element = tensor::ExtractOp::create(nested, loc, update, position);
    return frontend::select(nested, loc, isInside, element, x.back());
  };
  results.push_back(frontend::generate(b, extents, inputs, type.getElementType(), body));
  return success();
}

static LogicalResult translateConcatenate(FrontendOp &op, Values &results) {
  SmallVector<Value> inputs = op.operands();
  if (inputs.empty() || llvm::is_contained(inputs, Value()) || op.getOperation()->getNumResults() != 1)
    return op.error() << "expected at least one tensor";
  int64_t dim = op.integer("dimension", -1);
  if (failed(requireDims(op, dim, typeOf(inputs[0]).getRank(), "dimension")))
    return failure();
  if (failed(frontend::requireConcatenable(op, inputs, dim)))
    return failure();
  results.push_back(frontend::concat(op.builder(), inputs, dim));
  return success();
}

static LogicalResult translatePad(FrontendOp &op, Values &results) {
  bool isDynamic = op.getName() == "dynamic_pad";
  if (failed(requireOperands(op, isDynamic ? 5 : 2)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value tensor = op.operand(0), value = op.operand(1);
  RankedTensorType type = typeOf(tensor);
  size_t rank = type.getRank();
  if (typeOf(value).getRank() != 0 || typeOf(value).getElementType() != type.getElementType())
    return op.error() << "the value is " << value.getType() << ", expected one " << type.getElementType();
  Extents pads[3];
  static const StringRef names[] = {"edge_padding_low", "edge_padding_high", "interior_padding"};
  for (auto [i, name] : llvm::enumerate(names)) {
    if (isDynamic) {
      FailureOr<Extents> found = requireExtents(op, 2 + i, name);
      if (failed(found))
        return failure();
      pads[i] = *found;
    } else {
      auto found = requireIntegers(op, name, rank);
      if (failed(found))
        return failure();
      pads[i] = getAsIndexOpFoldResult(b.getContext(), *found);
    }
    if (pads[i].size() != rank)
      return op.error() << name << " has " << pads[i].size() << " elements, expected " << rank;
  }
  if (!llvm::all_of(pads[2], [](OpFoldResult each) { return isConstantIntValue(each, 0); }))
    return op.error() << "padding between elements is not supported";
  for (auto [extent, low, high] : llvm::zip(type.getShape(), pads[0], pads[1]))
    if (!ShapedType::isDynamic(extent) && getConstantIntValue(low) && getConstantIntValue(high) &&
        extent + *getConstantIntValue(low) + *getConstantIntValue(high) < 0)
      return op.error() << "the padding crops " << type << " to a negative extent";
  std::optional<SmallVector<OpFoldResult>> known = frontend::elementsOf(value);
  Value scalar =
      known ? frontend::toValue(b, known->front()) : Value(tensor::ExtractOp::create(b, value, ValueRange()));
  results.push_back(frontend::pad(b, tensor, pads[0], pads[1], scalar));
  return success();
}

static LogicalResult translateReverse(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  int64_t rank = typeOf(op.operand(0)).getRank();
  auto dims = requireIntegers(op, "dimensions");
  if (failed(dims) || failed(requireDims(op, *dims, rank, "dimensions")))
    return failure();
  Extents sizes = frontend::extentsOf(b, op.operand(0)), offsets(rank, b.getIndexAttr(0));
  SmallVector<int64_t> steps(rank, 1);
  for (int64_t dim : *dims) {
    offsets[dim] = frontend::subtractExtents(b, sizes[dim], b.getIndexAttr(1));
    steps[dim] = -1;
  }
  results.push_back(dims->empty() ? op.operand(0) : frontend::slice(b, op.operand(0), offsets, sizes, steps));
  return success();
}

void stablehlo::addSlices(frontend::Frontend &frontend) {
  frontend.translators["concatenate"] = translateConcatenate;
  frontend.translators["dynamic_slice"] = translateDynamicSlice;
  frontend.translators["dynamic_update_slice"] = translateUpdate;
  frontend.translators["pad"] = frontend.translators["dynamic_pad"] = translatePad;
  frontend.translators["real_dynamic_slice"] = translateRealDynamicSlice;
  frontend.translators["reverse"] = translateReverse;
  frontend.translators["slice"] = translateSlice;
}
