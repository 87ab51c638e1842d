//===- Gathers.cpp - StableHLO gathers ------------------------------------===//
#include "StableHLO.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::stablehlo;
using frontend::Extents;

namespace {

/// The fields of #stablehlo.gather<...> and the slice sizes.
struct GatherDims {
  SmallVector<int64_t> offsets, collapsed, batches, indexBatches, starts;
  Extents sizes;
  int64_t vector;
};

} // namespace

static FailureOr<GatherDims> readGatherDims(FrontendOp &op) {
  auto text = requireOpaque(op, "dimension_numbers", "gather");
  if (failed(text))
    return failure();
  int64_t rank = typeOf(op.operand(0)).getRank(), depth = typeOf(op.operand(1)).getRank();
  GatherDims numbers;
  SmallVector<int64_t> vector;
  for (auto [name, list] : {std::pair("offset_dims", &numbers.offsets),
                            {"collapsed_slice_dims", &numbers.collapsed},
                            {"operand_batching_dims", &numbers.batches},
                            {"start_indices_batching_dims", &numbers.indexBatches},
                            {"start_index_map", &numbers.starts},
                            {"index_vector_dim", &vector}}) {
    auto found = text->integers(name);
    if (!found)
      return op.error() << name << " is not a list of integers";
    *list = *found;
  }
  // Zero is the default and not printed.
  numbers.vector = vector.empty() ? 0 : vector.front();
  if (op.getName() == "dynamic_gather") {
    FailureOr<Extents> sizes = requireExtents(op, 2, "the list of sizes");
    if (failed(sizes))
      return failure();
    numbers.sizes = *sizes;
  } else {
    auto sizes = requireIntegers(op, "slice_sizes");
    if (failed(sizes))
      return failure();
    numbers.sizes = getAsIndexOpFoldResult(op.builder().getContext(), *sizes);
  }
  SmallVector<int64_t> dropped(numbers.collapsed);
  dropped.append(numbers.batches);
  SmallVector<int64_t> gathered(numbers.starts);
  gathered.append(numbers.batches);
  if (numbers.vector < 0 || numbers.vector > depth)
    return op.error() << "index_vector_dim: dimension " << numbers.vector << " is outside of "
                      << op.operand(1).getType();
  int64_t outer = depth - (numbers.vector < depth);
  if (failed(requireDims(op, dropped, rank, "collapsed_slice_dims")) ||
      failed(requireDims(op, gathered, rank, "start_index_map")) ||
      failed(requireDims(op, numbers.indexBatches, depth, "start_indices_batching_dims")) ||
      failed(requireDims(op, numbers.offsets, outer + numbers.offsets.size(), "offset_dims")))
    return failure();
  int64_t count = numbers.vector < depth ? typeOf(op.operand(1)).getDimSize(numbers.vector) : 1;
  if (count != static_cast<int64_t>(numbers.starts.size()) || static_cast<int64_t>(numbers.sizes.size()) != rank ||
      numbers.batches.size() != numbers.indexBatches.size() ||
      llvm::is_contained(numbers.indexBatches, numbers.vector) ||
      static_cast<int64_t>(numbers.offsets.size() + dropped.size()) != rank)
    return op.error() << "the dimension numbers do not fit " << op.operand(0).getType() << " and "
                      << op.operand(1).getType();
  for (int64_t dim = 0; dim < rank; ++dim) {
    int64_t extent = typeOf(op.operand(0)).getDimSize(dim);
    std::optional<int64_t> size = getConstantIntValue(numbers.sizes[dim]);
    bool isDropped = llvm::is_contained(dropped, dim),
         isGathered = isDropped && !llvm::is_contained(numbers.batches, dim);
    if ((size && (*size < 0 || (!ShapedType::isDynamic(extent) && *size > extent))) || (isDropped && size != 1) ||
        (isGathered && extent == 0))
      return op.error() << "a slice of " << size.value_or(-1) << " elements of dimension " << dim << " of "
                        << op.operand(0).getType() << " is not supported";
  }
  return numbers;
}

/// Emits a gather of one slice at a constant position as a slice; null for other gathers.
static Value takeSlice(FrontendOp &op, const GatherDims &numbers) {
  ImplicitLocOpBuilder &b = op.builder();
  Value table = op.operand(0), indices = op.operand(1);
  std::optional<SmallVector<int64_t>> known = frontend::constantIntegers(indices);
  if (!known || typeOf(indices).getRank() > 1 || numbers.vector != 0 || !numbers.batches.empty())
    return nullptr;
  Extents extents = frontend::extentsOf(b, table), offsets(extents.size(), b.getIndexAttr(0));
  for (auto [dim, start] : llvm::zip(numbers.starts, *known)) {
    std::optional<int64_t> extent = getConstantIntValue(extents[dim]), size = getConstantIntValue(numbers.sizes[dim]);
    if (start > 0 && (!extent || !size))
      return nullptr;
    offsets[dim] = b.getIndexAttr(start > 0 ? std::min(start, *extent - *size) : 0);
  }
  Value slice = frontend::slice(b, table, offsets, numbers.sizes, SmallVector<int64_t>(extents.size(), 1));
  return frontend::squeeze(b, slice, numbers.collapsed);
}

/// Result dimensions are index dimensions and slice dimensions. Start indices are clamped so that slices are in bounds.
static LogicalResult translateGather(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, op.getName() == "gather" ? 2 : 3)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value table = op.operand(0), indices = op.operand(1);
  if (!isa<IntegerType>(typeOf(indices).getElementType()))
    return op.error() << "indices are " << indices.getType() << ", expected integers";
  FailureOr<GatherDims> numbers = readGatherDims(op);
  if (failed(numbers))
    return failure();
  if (Value slice = takeSlice(op, *numbers)) {
    results.push_back(slice);
    return success();
  }
  int64_t rank = typeOf(table).getRank(), depth = typeOf(indices).getRank();
  Extents from = frontend::extentsOf(b, table), all = frontend::extentsOf(b, indices), result;

  // The dimensions of the result: slice dimensions at offset_dims, index dimensions elsewhere.
  SmallVector<int64_t> outer, inner, places;
  for (int64_t i = 0; i < depth; ++i)
    if (i != numbers->vector)
      outer.push_back(i);
  for (int64_t i = 0; i < rank; ++i)
    if (!llvm::is_contained(numbers->collapsed, i) && !llvm::is_contained(numbers->batches, i))
      inner.push_back(i);
  SmallVector<int64_t> offsets = numbers->offsets;
  llvm::sort(offsets);
  for (size_t i = 0, taken = 0; i < outer.size() + inner.size(); ++i) {
    auto offset = llvm::find(offsets, static_cast<int64_t>(i));
    if (offset != offsets.end()) {
      result.push_back(numbers->sizes[inner[offset - offsets.begin()]]);
    } else {
      places.push_back(i);
      result.push_back(all[outer[taken++]]);
    }
  }
  // One input per gathered dimension, broadcast along the slices.
  SmallVector<Value> inputs, maxStarts;
  for (auto [i, dim] : llvm::enumerate(numbers->starts)) {
    Value one = numbers->vector < depth ? frontend::selectIndex(b, indices, numbers->vector, i) : indices;
    inputs.push_back(offsets.empty() ? one : frontend::unsqueeze(b, one, offsets));
    OpFoldResult last = frontend::subtractExtents(b, from[dim], numbers->sizes[dim]);
    maxStarts.push_back(getValueOrCreateConstantIndexOp(b, b.getLoc(), last));
  }
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) -> Value {
    SmallVector<Value> position(rank);
    for (auto [dim, offset] : llvm::zip(inner, offsets))
      position[dim] = x[offset];
    for (auto [dim, batch] : llvm::zip(numbers->batches, numbers->indexBatches))
      position[dim] = x[places[llvm::find(outer, batch) - outer.begin()]];
    Value zero = arith::ConstantIndexOp::create(nested, loc, 0);
    for (auto [dim, start, last] : llvm::zip(numbers->starts, x.take_back(inputs.size()), maxStarts)) {
      Value at = frontend::convert(nested, loc, start, nested.getIndexType());
      at = frontend::maximum(nested, loc, zero, frontend::minimum(nested, loc, at, last));
      position[dim] = position[dim] ? frontend::add(nested, loc, at, position[dim]) : at;
    }
    for (Value &each : position)
      each = each ? each : zero;
    return tensor::ExtractOp::create(nested, loc, table, position);
  };
  results.push_back(frontend::generate(b, result, inputs, typeOf(table).getElementType(), body));
  return success();
}

void stablehlo::addGathers(frontend::Frontend &frontend) {
  frontend.translators["gather"] = frontend.translators["dynamic_gather"] = translateGather;
}
