//===- Gathers.cpp - PyTorch indexing operators ---------------------------===//
#include "Torch.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Import/Common/Gather.h"
#include "saccade/Import/Common/Scatter.h"
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

namespace {

/// Advanced indexing tensor[i, j, :, ...]: index tensors broadcast to one another, None keeps a dimension. The
/// broadcast dimensions replace the indexed ones, or come first if the indexed dimensions are not adjacent.
struct Indexing {
  SmallVector<int64_t> dims;   // that are indexed
  SmallVector<Value> indices;  // for each of them
  Extents indexed;             // what the indices broadcast to
  int64_t at;                  // its place in the result
  SmallVector<int64_t> places; // in the result, of each dimension; −1 for those that are indexed
  Extents result;
};

} // namespace

static FailureOr<Indexing> readIndexing(Arguments &a, Value tensor) {
  ImplicitLocOpBuilder &b = a.op.builder();
  int64_t rank = rankOf(tensor);
  SmallVector<Value> given = a.list("indices");
  Indexing read;
  for (auto [dim, index] : llvm::enumerate(given)) {
    if (!index)
      continue;
    if (elementOf(index).isInteger(1))
      return a.op.error() << "a bool mask as index is not supported: the number of elements depends on the data";
    read.dims.push_back(dim);
    read.indices.push_back(index);
  }
  if (static_cast<int64_t>(given.size()) > rank || read.dims.empty())
    return a.op.error() << "found " << given.size() << " indices, expected 1 to " << rank << " for "
                        << tensor.getType();
  if (failed(frontend::requireBroadcast(a.op, read.indices)))
    return failure();
  SmallVector<Extents> shapes;
  for (Value index : read.indices)
    shapes.push_back(frontend::extentsOf(b, index));
  read.indexed = *frontend::broadcastExtents(b, shapes);
  Extents from = frontend::extentsOf(b, tensor);
  bool isAdjacent = read.dims.back() - read.dims.front() + 1 == static_cast<int64_t>(read.dims.size());
  read.at = isAdjacent ? read.dims.front() : 0;
  read.places.assign(rank, -1);
  for (int64_t dim = 0; dim <= rank; ++dim) {
    if (static_cast<int64_t>(read.result.size()) == read.at && (dim == read.at || !isAdjacent))
      read.result.append(read.indexed);
    if (dim == rank || llvm::is_contained(read.dims, dim))
      continue;
    read.places[dim] = read.result.size();
    read.result.push_back(from[dim]);
  }
  return read;
}

static LogicalResult translateIndex(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  int64_t rank = rankOf(*tensor);
  FailureOr<Indexing> read = readIndexing(a, *tensor);
  if (failed(read))
    return failure();
  for (Value index : read->indices)
    if (failed(frontend::requireIndices(a.op, *tensor, index, read->dims)))
      return failure();
  if (read->dims.size() == 1)
    return append(frontend::gatherSlices(a.op, *tensor, read->indices[0], read->dims[0]), results);
  int64_t trailing = read->result.size() - read->at - read->indexed.size();
  for (Value &index : read->indices)
    if (trailing > 0)
      index = frontend::unsqueeze(b, index, llvm::to_vector(llvm::seq(rankOf(index), rankOf(index) + trailing)));
  SmallVector<Value> extents;
  Extents from = frontend::extentsOf(b, *tensor);
  for (int64_t dim : read->dims)
    extents.push_back(getValueOrCreateConstantIndexOp(b, b.getLoc(), from[dim]));
  Value table = *tensor;
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) -> Value {
    SmallVector<Value> position(rank);
    for (int64_t dim = 0; dim < rank; ++dim)
      if (read->places[dim] >= 0)
        position[dim] = x[read->places[dim]];
    for (auto [dim, index, extent] : llvm::zip(read->dims, x.take_back(read->dims.size()), extents))
      position[dim] = frontend::clampIndexToExtent(nested, loc, index, extent);
    return tensor::ExtractOp::create(nested, loc, table, position);
  };
  results.push_back(frontend::generate(b, read->result, read->indices, elementOf(table), body));
  return success();
}

/// Replaces the elements that a mask selects by `values`, which broadcast to the dimensions that the mask lacks. The
/// mask has the dimensions of the tensor from `first` on.
static LogicalResult putByMask(Arguments &a, Value tensor, Value mask, int64_t first, Value values, Values &results) {
  ImplicitLocOpBuilder &b = a.op.builder();
  int64_t rank = rankOf(tensor), after = rank - first - rankOf(mask);
  Type type = elementOf(tensor);
  if (after < 0)
    return a.op.error() << "the mask is " << mask.getType() << ", expected dimensions of " << tensor.getType();
  // One value for all selected elements.
  bool repeats = rankOf(values) == after + 1 && cast<RankedTensorType>(values.getType()).getDimSize(0) == 1;
  if (first == 0 && repeats)
    values = frontend::squeeze(b, values, {0});
  if (a.flag("accumulate"))
    return a.op.error() << "'accumulate' is not supported where a mask selects elements";
  if (rankOf(values) > after)
    return a.op.error() << "values for each element that a mask selects are not supported: their number depends on the "
                           "data, expected a value that all of them share";
  for (auto [found, expected] : llvm::zip(cast<RankedTensorType>(mask.getType()).getShape(),
                                          cast<RankedTensorType>(tensor.getType()).getShape().drop_front(first)))
    if (failed(frontend::requireEqual(a.op, found, expected, "an extent of the mask")))
      return failure();
  if (after > 0)
    mask = frontend::unsqueeze(b, mask, llvm::to_vector(llvm::seq(rankOf(mask), rankOf(mask) + after)));
  if (failed(frontend::requireBroadcast(a.op, {mask, tensor, values})))
    return failure();
  results.push_back(
      frontend::elementwise(b, {mask, tensor, values}, type, [&](OpBuilder &nested, Location loc, ValueRange x) {
        return frontend::select(nested, loc, x[0], frontend::convert(nested, loc, x[2], type), x[1]);
      }));
  return success();
}

/// Replaces the elements tensor[i, j, :, ...] by `values`, or adds these.
static LogicalResult translateIndexPut(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self"), given = a.required("values");
  if (failed(tensor) || failed(given))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  SmallVector<Value> indices = a.list("indices");
  if (!indices.empty() && indices.back() && elementOf(indices.back()).isInteger(1) &&
      llvm::none_of(ArrayRef(indices).drop_back(), [](Value each) { return each != nullptr; }))
    return putByMask(a, *tensor, indices.back(), indices.size() - 1, *given, results);
  FailureOr<Indexing> read = readIndexing(a, *tensor);
  if (failed(read))
    return failure();
  for (Value index : read->indices)
    if (failed(frontend::requireIndices(a.op, *tensor, index, {})))
      return failure();
  RankedTensorType shape = frontend::typeOf(read->result, elementOf(*tensor));
  if (failed(frontend::requireBroadcastTo(a.op, *given, shape)))
    return failure();
  OpFoldResult number = frontend::multiplyExtents(b, read->indexed);
  if (llvm::is_contained(shape.getShape(), 0)) {
    (void)a.flag("accumulate");
    results.push_back(*tensor);
    return success();
  }
  Value values = frontend::castElements(b, *given, elementOf(*tensor));
  values = frontend::broadcastTo(b, values, read->result);
  // The updates, with their number in one dimension.
  int64_t depth = read->indexed.size(), at = read->at;
  if (depth > 1 && at > 0) {
    SmallVector<int64_t> order = llvm::to_vector(llvm::seq(at, at + depth));
    for (int64_t i = 0; i < rankOf(values); ++i)
      if (i < at || i >= at + depth)
        order.push_back(i);
    values = frontend::transpose(b, values, order);
    at = 0;
  }
  if (depth != 1) {
    Extents rows = frontend::extentsOf(b, values);
    rows.erase(rows.begin() + at, rows.begin() + at + depth);
    rows.insert(rows.begin() + at, number);
    values = frontend::reshape(b, values, rows);
  }
  for (Value &index : read->indices)
    index = frontend::reshape(b, frontend::broadcastTo(b, index, read->indexed), {number});
  frontend::ScatterRule rule{a.flag("accumulate") ? frontend::ScatterRule::Sum : frontend::ScatterRule::Last};
  results.push_back(frontend::scatterSlices(b, *tensor, read->dims, read->indices, values, at, rule));
  return success();
}

void torch::addGathers(frontend::Frontend &frontend) {
  add(frontend, "aten.embedding", translateEmbedding);
  add(frontend, "aten.gather", translateGather);
  add(frontend, "aten.index", translateIndex);
  for (StringRef name : {"aten._unsafe_index_put", "aten.index_put"})
    add(frontend, name, translateIndexPut);
  add(frontend, "aten.index_select", translateIndexSelect);
}
