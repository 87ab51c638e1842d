//===- Slices.cpp - PyTorch slicing operators -----------------------------===//
#include "Torch.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Import/Common/Views.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;

/// The slice bounds given by the arguments of the op.
static FailureOr<frontend::SliceBounds> boundsOf(const Arguments &a, Value tensor) {
  FailureOr<int64_t> dim = a.axis("dim", 0, rankOf(tensor));
  FailureOr<OpFoldResult> start = a.size("start", 0), end = a.size("end", std::numeric_limits<int64_t>::max());
  if (failed(dim) || failed(start) || failed(end))
    return failure();
  int64_t step = a.integer("step", 1);
  if (step <= 0)
    return a.op.error() << "the step is " << step << ", expected at least 1";
  return frontend::SliceBounds{*dim, *start, *end, step};
}

static LogicalResult translateSlice(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  FailureOr<frontend::SliceBounds> bounds = boundsOf(a, *tensor);
  if (failed(bounds))
    return failure();
  return append(frontend::sliceBetween(a.op, *tensor, *bounds), results);
}

/// `length` elements from `start`, which may count from the end.
static LogicalResult translateNarrow(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  FailureOr<int64_t> dim = a.axis("dim", 0, rankOf(*tensor));
  FailureOr<OpFoldResult> start = a.size("start", 0), length = a.size("length", 0);
  if (failed(dim) || failed(start) || failed(length))
    return failure();
  OpFoldResult extent = frontend::extentsOf(a.op.builder(), *tensor)[*dim];
  std::optional<int64_t> first = getConstantIntValue(*start), count = getConstantIntValue(*length),
                         size = getConstantIntValue(extent);
  if ((count && *count < 0) || (first && size && (*first < -*size || *first > *size)) ||
      (first && size && count && *count > *size - (*first < 0 ? *first + *size : *first)))
    return a.op.error() << "'start' and 'length' are out of range for dimension " << *dim << " of "
                        << tensor->getType();
  if (first && *first < 0)
    start = frontend::addExtents(a.op.builder(), extent, *start);
  OpFoldResult end = frontend::addExtents(a.op.builder(), *start, *length);
  return append(frontend::sliceBetween(a.op, *tensor, frontend::SliceBounds{*dim, *start, end}), results);
}

/// Normalizes an index that may count from the end; emits an error if it is out of range.
static FailureOr<OpFoldResult> positionOf(Arguments &a, OpFoldResult index, OpFoldResult extent, Type type) {
  std::optional<int64_t> at = getConstantIntValue(index), size = getConstantIntValue(extent);
  if (at && size && (*at < -*size || *at >= *size))
    return a.op.error() << "index " << *at << " is outside of " << type;
  return at && *at < 0 ? frontend::addExtents(a.op.builder(), extent, index) : index;
}

/// The offsets of the slice at `index` along `dim`, which may be dynamic.
static FailureOr<Extents> offsetsOf(Arguments &a, Value tensor, int64_t dim) {
  ImplicitLocOpBuilder &b = a.op.builder();
  FailureOr<OpFoldResult> index = a.size("index", 0);
  if (failed(index))
    return failure();
  FailureOr<OpFoldResult> at = positionOf(a, *index, frontend::extentsOf(b, tensor)[dim], tensor.getType());
  if (failed(at))
    return failure();
  Extents offsets(rankOf(tensor), b.getIndexAttr(0));
  offsets[dim] = *at;
  return offsets;
}

static LogicalResult translateSelect(Arguments &a, Values &results) {
  FailureOr<TensorDim> selected = a.tensorAndDim();
  if (failed(selected))
    return failure();
  auto [tensor, dim] = *selected;
  FailureOr<Extents> offsets = offsetsOf(a, tensor, dim);
  if (failed(offsets))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  Extents sizes = frontend::extentsOf(b, tensor);
  sizes[dim] = b.getIndexAttr(1);
  SmallVector<int64_t> steps(sizes.size(), 1);
  results.push_back(frontend::squeeze(b, frontend::slice(b, tensor, *offsets, sizes, steps), dim));
  return success();
}

/// Replaces a slice of `tensor` by `source`, which must have its extents.
static FailureOr<Value> updateSlice(Arguments &a, Value tensor, Value source, const frontend::Slice &slice) {
  ImplicitLocOpBuilder &b = a.op.builder();
  auto own = cast<RankedTensorType>(source.getType()), whole = cast<RankedTensorType>(tensor.getType());
  if (own.getRank() != whole.getRank())
    return a.op.error() << "the source has " << own.getRank() << " dimensions, expected " << whole.getRank();
  for (auto [found, expected] : llvm::zip(own.getShape(), slice.sizes))
    if (std::optional<int64_t> size = getConstantIntValue(expected);
        size && failed(frontend::requireEqual(a.op, found, *size, "an extent of the source")))
      return failure();
  Value converted = frontend::castElements(b, source, whole.getElementType());
  if (llvm::any_of(slice.sizes, [](OpFoldResult size) { return isConstantIntValue(size, 0); }))
    return tensor;
  // The slice is the whole tensor.
  if (whole.hasStaticShape() && own.getShape() == whole.getShape())
    return converted;
  auto strides = getAsIndexOpFoldResult(b.getContext(), slice.steps);
  return tensor::InsertSliceOp::create(b, converted, tensor, slice.offsets, frontend::extentsOf(b, source), strides)
      .getResult();
}

static LogicalResult translateSliceScatter(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self"), source = a.required("src");
  if (failed(tensor) || failed(source))
    return failure();
  FailureOr<frontend::SliceBounds> bounds = boundsOf(a, *tensor);
  if (failed(bounds))
    return failure();
  FailureOr<frontend::Slice> slice = frontend::computeSlice(a.op, *tensor, *bounds);
  return failed(slice) ? failure() : append(updateSlice(a, *tensor, *source, *slice), results);
}

static LogicalResult translateSelectScatter(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self"), source = a.required("src");
  if (failed(tensor) || failed(source))
    return failure();
  FailureOr<int64_t> dim = a.axis("dim", 0, rankOf(*tensor));
  if (failed(dim))
    return failure();
  FailureOr<Extents> offsets = offsetsOf(a, *tensor, *dim);
  if (failed(offsets))
    return failure();
  if (rankOf(*source) + 1 != rankOf(*tensor))
    return a.op.error() << "the source is " << source->getType() << ", expected one dimension less than "
                        << tensor->getType();
  frontend::Slice slice{*offsets, frontend::extentsOf(a.op.builder(), *tensor),
                        SmallVector<int64_t>(rankOf(*tensor), 1)};
  slice.sizes[*dim] = a.op.builder().getIndexAttr(1);
  return append(updateSlice(a, *tensor, frontend::unsqueeze(a.op.builder(), *source, *dim), slice), results);
}

//===- Splits -------------------------------------------------------------===//

/// Splits into parts of one size, of given sizes, or into a given number of chunks.
static LogicalResult translateSplit(Arguments &a, Values &results) {
  FailureOr<TensorDim> selected = a.tensorAndDim();
  if (failed(selected))
    return failure();
  auto [tensor, dim] = *selected;
  int64_t extent = cast<RankedTensorType>(tensor.getType()).getDimSize(dim);
  bool isChunk = a.op.getName() == "aten.chunk";
  auto given = a.integers(isChunk ? "chunks" : a.has("split_sizes") ? "split_sizes" : "split_size");
  if (!given || given->empty())
    return a.op.error() << "the sizes of the parts must be constant";
  bool isOne = !isa_and_present<ArrayAttr>(a.attribute(a.has("split_sizes") ? "split_sizes" : "split_size"));
  SmallVector<int64_t> sizes = *given;
  if (isChunk || isOne) {
    if (ShapedType::isDynamic(extent) || given->front() <= 0)
      return a.op.error() << "dimension " << dim << " of " << tensor.getType() << " must be static to be split evenly";
    int64_t size = isChunk ? llvm::divideCeil(extent, given->front()) : given->front();
    sizes.clear();
    for (int64_t at = 0; at < extent; at += size)
      sizes.push_back(std::min(size, extent - at));
    if (extent == 0)
      sizes.assign(a.op.getOperation()->getNumResults(), 0);
  }
  return frontend::splitInto(a.op, tensor, dim, sizes, results);
}

static LogicalResult translateUnbind(Arguments &a, Values &results) {
  FailureOr<TensorDim> selected = a.tensorAndDim();
  if (failed(selected))
    return failure();
  auto [tensor, dim] = *selected;
  int64_t count = a.op.getOperation()->getNumResults();
  if (failed(frontend::requireEqual(a.op, cast<RankedTensorType>(tensor.getType()).getDimSize(dim), count, "parts")))
    return failure();
  for (int64_t i = 0; i < count; ++i)
    results.push_back(frontend::selectIndex(a.op.builder(), tensor, dim, i));
  return success();
}

static LogicalResult translateTriangle(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  FailureOr<OpFoldResult> diagonal = a.size("diagonal", 0);
  if (failed(tensor) || failed(diagonal))
    return failure();
  return append(frontend::keepTriangle(a.op, *tensor, *diagonal, /*keepsUpper=*/a.op.getName() == "aten.triu"),
                results);
}

void torch::addSlices(frontend::Frontend &frontend) {
  for (StringRef name : {"aten.chunk", "aten.split", "aten.split_with_sizes"})
    add(frontend, name, translateSplit);
  for (StringRef name : {"aten.tril", "aten.triu"})
    add(frontend, name, translateTriangle);
  add(frontend, "aten.narrow", translateNarrow);
  add(frontend, "aten.select", translateSelect);
  add(frontend, "aten.select_scatter", translateSelectScatter);
  add(frontend, "aten.slice", translateSlice);
  add(frontend, "aten.slice_scatter", translateSliceScatter);
  add(frontend, "aten.unbind", translateUnbind);
}
