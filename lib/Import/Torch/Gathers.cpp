//===- Gathers.cpp - PyTorch indexing operators ---------------------------===//
#include "Torch.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Import/Common/Gather.h"
#include "saccade/Import/Common/Structured.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;

static LogicalResult translateEmbedding(Arguments &a, Values &results) {
  FailureOr<Value> weight = a.required("weight"), indices = a.required("indices");
  if (failed(weight) || failed(indices))
    return failure();
  if (rankOf(*weight) != 2)
    return a.op.error() << "the weight is " << weight->getType() << ", expected a matrix";
  return append(frontend::gatherSlices(a.op, *weight, *indices, 0), results);
}

static LogicalResult translateIndexSelect(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self"), index = a.required("index");
  if (failed(tensor) || failed(index))
    return failure();
  FailureOr<int64_t> dim = a.axis("dim", 0, rankOf(*tensor));
  return failed(dim) ? failure() : append(frontend::gatherSlices(a.op, *tensor, *index, *dim), results);
}

static LogicalResult translateGather(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self"), index = a.required("index");
  if (failed(tensor) || failed(index))
    return failure();
  FailureOr<int64_t> dim = a.axis("dim", 0, rankOf(*tensor));
  return failed(dim) ? failure() : append(frontend::gatherElements(a.op, *tensor, *index, *dim), results);
}

/// Advanced indexing tensor[i, j, :, ...]: index tensors broadcast to one another, None keeps a dimension. The
/// broadcast dimensions replace the indexed ones, or come first if the indexed dimensions are not adjacent.
static LogicalResult translateIndex(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  int64_t rank = rankOf(*tensor);
  SmallVector<Value> given = a.list("indices");
  SmallVector<int64_t> dims;
  SmallVector<Value> inputs;
  for (auto [dim, index] : llvm::enumerate(given)) {
    if (!index)
      continue;
    if (elementOf(index).isInteger(1))
      return a.op.error() << "a bool mask as index is not supported: the result shape depends on the data";
    dims.push_back(dim);
    inputs.push_back(index);
  }
  if (static_cast<int64_t>(given.size()) > rank || dims.empty())
    return a.op.error() << "found " << given.size() << " indices, expected 1 to " << rank << " for "
                        << tensor->getType();
  if (failed(frontend::requireBroadcast(a.op, inputs)))
    return failure();
  for (Value index : inputs)
    if (failed(frontend::requireIndices(a.op, *tensor, index, dims)))
      return failure();
  if (dims.size() == 1)
    return append(frontend::gatherSlices(a.op, *tensor, inputs[0], dims[0]), results);

  SmallVector<Extents> shapes;
  for (Value index : inputs)
    shapes.push_back(frontend::extentsOf(b, index));
  Extents from = frontend::extentsOf(b, *tensor), indexed = *frontend::broadcastExtents(b, shapes), result;
  bool isAdjacent = dims.back() - dims.front() + 1 == static_cast<int64_t>(dims.size());
  int64_t at = isAdjacent ? dims.front() : 0, depth = indexed.size();
  // The position in the result of each dimension that is not indexed.
  SmallVector<int64_t> places(rank, -1);
  for (int64_t dim = 0; dim <= rank; ++dim) {
    if (static_cast<int64_t>(result.size()) == at && (dim == at || !isAdjacent))
      result.append(indexed);
    if (dim == rank || llvm::is_contained(dims, dim))
      continue;
    places[dim] = result.size();
    result.push_back(from[dim]);
  }
  int64_t trailing = result.size() - at - depth;
  for (Value &index : inputs)
    if (trailing > 0)
      index = frontend::unsqueeze(b, index, llvm::to_vector(llvm::seq(rankOf(index), rankOf(index) + trailing)));
  SmallVector<Value> extents;
  for (int64_t dim : dims)
    extents.push_back(getValueOrCreateConstantIndexOp(b, b.getLoc(), from[dim]));
  Value table = *tensor;
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) -> Value {
    SmallVector<Value> position(rank);
    for (int64_t dim = 0; dim < rank; ++dim)
      if (places[dim] >= 0)
        position[dim] = x[places[dim]];
    for (auto [dim, index, extent] : llvm::zip(dims, x.take_back(dims.size()), extents))
      position[dim] = frontend::clampIndexToExtent(nested, loc, index, extent);
    return tensor::ExtractOp::create(nested, loc, table, position);
  };
  results.push_back(frontend::generate(b, result, inputs, elementOf(table), body));
  return success();
}

/// Replaces elements selected by one mask with a scalar.
static LogicalResult translateIndexPut(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self"), values = a.required("values");
  SmallVector<Value> indices = a.list("indices");
  if (failed(tensor) || failed(values))
    return failure();
  bool isMask = indices.size() == 1 && indices[0] && elementOf(indices[0]).isInteger(1) && !a.flag("accumulate");
  if (!isMask || rankOf(indices[0]) > rankOf(*tensor) || rankOf(*values) != 0)
    return a.op.error() << "only a scalar value at elements selected by one mask is supported";
  ImplicitLocOpBuilder &b = a.op.builder();
  int64_t rank = rankOf(indices[0]);
  Value mask = indices[0];
  for (auto [found, expected] : llvm::zip(cast<RankedTensorType>(mask.getType()).getShape(),
                                          cast<RankedTensorType>(tensor->getType()).getShape()))
    if (failed(frontend::requireEqual(a.op, found, expected, "an extent of the mask")))
      return failure();
  if (rank < rankOf(*tensor))
    mask = frontend::unsqueeze(b, mask, llvm::to_vector(llvm::seq(rank, rankOf(*tensor))));
  if (failed(frontend::requireBroadcast(a.op, {mask, *tensor, *values})))
    return failure();
  Type type = elementOf(*tensor);
  results.push_back(
      frontend::elementwise(b, {mask, *tensor, *values}, type, [&](OpBuilder &nested, Location loc, ValueRange x) {
        return frontend::select(nested, loc, x[0], frontend::convert(nested, loc, x[2], type), x[1]);
      }));
  return success();
}

void torch::addGathers(frontend::Frontend &frontend) {
  add(frontend, "aten.embedding", translateEmbedding);
  add(frontend, "aten.gather", translateGather);
  add(frontend, "aten.index", translateIndex);
  add(frontend, "aten.index_put", translateIndexPut);
  add(frontend, "aten.index_select", translateIndexSelect);
}
