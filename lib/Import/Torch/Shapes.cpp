//===- Shapes.cpp - PyTorch shape operators -------------------------------===//
#include "Torch.h"
#include "saccade/Import/Common/Gather.h"
#include "saccade/Import/Common/Reductions.h"
#include "saccade/Import/Common/Views.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;

static LogicalResult translateReshape(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  if (a.attribute("dtype"))
    return a.op.error() << "reinterpreting a tensor as another type is not supported";
  ImplicitLocOpBuilder &b = a.op.builder();
  Extents shape;
  if (Value other = a.tensor("other")) {
    shape = frontend::extentsOf(b, other);
  } else {
    FailureOr<Extents> given = a.requiredSizes(a.has("shape") ? "shape" : "size");
    if (failed(given))
      return failure();
    shape = *given;
  }
  return append(frontend::reshapeInferred(a.op, *tensor, shape), results);
}

static LogicalResult translateFlatten(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  // A 0-D tensor is treated as 1-D.
  int64_t rank = rankOf(*tensor), dims = std::max<int64_t>(rank, 1);
  FailureOr<int64_t> first = a.axis("start_dim", 0, dims), last = a.axis("end_dim", -1, dims);
  if (failed(first) || failed(last))
    return failure();
  if (*first > *last)
    return a.op.error() << "start_dim " << *first << " is after end_dim " << *last;
  Extents extents = frontend::extentsOf(b, *tensor), shape(extents.begin(), extents.begin() + std::min(*first, rank));
  shape.push_back(frontend::multiplyExtents(b, rank ? ArrayRef(extents).slice(*first, *last - *first + 1) : extents));
  shape.append(extents.begin() + std::min(*last + 1, rank), extents.end());
  results.push_back(frontend::reshape(b, *tensor, shape));
  return success();
}

static LogicalResult translateUnflatten(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  FailureOr<Extents> sizes = a.requiredSizes("sizes");
  if (failed(tensor) || failed(sizes))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  FailureOr<int64_t> dim = a.axis("dim", 0, rankOf(*tensor));
  if (failed(dim))
    return failure();
  Extents extents = frontend::extentsOf(b, *tensor), parts = *sizes;
  // Infer a size of −1 from the other sizes.
  auto *inferred = llvm::find_if(parts, [](OpFoldResult each) { return isConstantIntValue(each, -1); });
  if (inferred != parts.end()) {
    *inferred = b.getIndexAttr(1);
    if (llvm::any_of(parts, [](OpFoldResult each) { return isConstantIntValue(each, 0); }))
      return a.op.error() << "cannot infer an extent of an empty shape";
    *inferred = frontend::divideExtents(b, extents[*dim], frontend::multiplyExtents(b, parts));
  }
  extents.erase(extents.begin() + *dim);
  extents.insert(extents.begin() + *dim, parts.begin(), parts.end());
  return append(frontend::reshapeInferred(a.op, *tensor, extents), results);
}

/// Drops the given dimensions if their extent is 1, or all dimensions of extent 1.
static LogicalResult translateSqueeze(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  auto type = cast<RankedTensorType>(tensor->getType());
  FailureOr<SmallVector<int64_t>> axes = a.axes("dim", type.getRank());
  if (failed(axes))
    return failure();
  // An empty list means no dimension, a missing one all.
  if (auto given = a.integers("dim"); given && given->empty())
    axes->clear();
  llvm::erase_if(*axes, [&](int64_t axis) { return type.getDimSize(axis) != 1; });
  results.push_back(frontend::squeeze(a.op.builder(), *tensor, *axes));
  return success();
}

static LogicalResult translateUnsqueeze(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  FailureOr<int64_t> axis = a.axis("dim", 0, rankOf(*tensor) + 1);
  if (failed(axis))
    return failure();
  results.push_back(frontend::unsqueeze(a.op.builder(), *tensor, *axis));
  return success();
}

static LogicalResult translatePermute(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  FailureOr<SmallVector<int64_t>> dims = a.axes("dims", rankOf(*tensor));
  if (failed(dims))
    return failure();
  if (static_cast<int64_t>(dims->size()) != rankOf(*tensor))
    return a.op.error() << "'dims' does not permute the dimensions of " << tensor->getType();
  results.push_back(frontend::transpose(a.op.builder(), *tensor, *dims));
  return success();
}

/// Swaps the given dimensions, or those of a matrix.
static LogicalResult translateTranspose(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  int64_t rank = rankOf(*tensor);
  bool isMatrix = a.op.getName() == "aten.t";
  if (rank == 0 || (isMatrix && rank < 2)) {
    (void)a.integer("dim0", 0), (void)a.integer("dim1", 0);
    results.push_back(*tensor);
    return success();
  }
  FailureOr<int64_t> first = a.axis("dim0", isMatrix ? 0 : -1, rank), second = a.axis("dim1", isMatrix ? 1 : -2, rank);
  if (failed(first) || failed(second))
    return failure();
  SmallVector<int64_t> permutation = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  std::swap(permutation[*first], permutation[*second]);
  results.push_back(frontend::transpose(a.op.builder(), *tensor, permutation));
  return success();
}

/// Broadcasts to a shape in which −1 keeps the extent of the tensor. Becomes a reshape if nothing is repeated.
static FailureOr<Value> expandTo(Arguments &a, Value tensor, Extents shape) {
  ImplicitLocOpBuilder &b = a.op.builder();
  Extents own = frontend::extentsOf(b, tensor);
  if (own.size() > shape.size())
    return a.op.error() << "found " << tensor.getType() << ", expected at most " << shape.size() << " dimensions";
  size_t added = shape.size() - own.size();
  bool broadcasts = false;
  for (auto [i, extent] : llvm::enumerate(shape)) {
    bool isKept = isConstantIntValue(extent, -1);
    if (i < added) {
      if (isKept)
        return a.op.error() << "extent " << i << " of the shape is -1, but the tensor does not have that dimension";
      broadcasts |= !isConstantIntValue(extent, 1);
      continue;
    }
    OpFoldResult found = own[i - added];
    // A dynamic extent is assumed not to broadcast.
    if (isKept || !isConstantIntValue(found, 1)) {
      std::optional<int64_t> expected = getConstantIntValue(extent), size = getConstantIntValue(found);
      if (!isKept && expected && size && *expected != *size)
        return a.op.error() << tensor.getType() << " does not broadcast to " << *expected << " elements in dimension "
                            << i;
      extent = size || isKept || !expected ? found : extent;
    } else {
      broadcasts |= !isConstantIntValue(extent, 1);
    }
  }
  if (failed(a.shape(shape)))
    return failure();
  return broadcasts ? frontend::broadcastTo(b, tensor, shape) : frontend::reshape(b, tensor, shape);
}

static LogicalResult translateExpand(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  if (Value other = a.tensor("other"))
    return append(expandTo(a, *tensor, frontend::extentsOf(a.op.builder(), other)), results);
  FailureOr<Extents> size = a.requiredSizes("size");
  if (failed(size))
    return failure();
  return append(expandTo(a, *tensor, *size), results);
}

static LogicalResult translateRepeat(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  FailureOr<Extents> repeats = a.requiredSizes(a.has("dims") ? "dims" : "repeats");
  if (failed(tensor) || failed(repeats))
    return failure();
  int64_t missing = rankOf(*tensor) - static_cast<int64_t>(repeats->size());
  if (a.has("dims") && missing > 0)
    repeats->insert(repeats->begin(), missing, a.op.builder().getIndexAttr(1));
  return append(frontend::tile(a.op, *tensor, *repeats), results);
}

/// For each of `size` copies, the position of the element that it is a copy of, given how often each is repeated: the
/// number of elements whose last copy comes before it.
static FailureOr<Value> repeatedPositions(Arguments &a, Value repeats, OpFoldResult size) {
  ImplicitLocOpBuilder &b = a.op.builder();
  if (rankOf(repeats) != 1 || !isa<IntegerType>(elementOf(repeats)) || elementOf(repeats).isInteger(1))
    return a.op.error() << "'repeats' is " << repeats.getType() << ", expected a row of integers";
  Value ends = frontend::cumulativeSum(b, frontend::castElements(b, repeats, b.getI64Type()), 0, /*isExclusive=*/false,
                                       /*isReversed=*/false);
  Extents table = {size, frontend::extentsOf(b, repeats)[0]};
  Value isBefore =
      frontend::generate(b, table, ends, b.getI64Type(), [](OpBuilder &nested, Location loc, ValueRange x) {
        Value place = frontend::convert(nested, loc, x[0], x[2].getType());
        Value ended = frontend::compare(nested, loc, arith::CmpIPredicate::sle, x[2], place);
        return frontend::convert(nested, loc, ended, x[2].getType());
      });
  return frontend::reduceBy(b, {frontend::Reduction::Zero, frontend::add}, isBefore, {1}, /*keepDims=*/false);
}

/// Repeats elements along `dim` as often as a tensor says, whose sum is `output_size`. Without `self`, their positions.
static LogicalResult repeatByTensor(Arguments &a, Value repeats, Values &results) {
  ImplicitLocOpBuilder &b = a.op.builder();
  if (!a.has("output_size"))
    return a.op.error() << "the result shape depends on the data of 'repeats': pass its sum as 'output_size'";
  FailureOr<OpFoldResult> size = a.size("output_size", 0);
  if (failed(size))
    return failure();
  Value tensor = a.tensor("self");
  if (tensor && !a.attribute("dim"))
    tensor = frontend::reshape(b, tensor, {frontend::multiplyExtents(b, frontend::extentsOf(b, tensor))});
  int64_t rank = tensor ? rankOf(tensor) : 1;
  FailureOr<int64_t> dim = a.axis("dim", 0, rank);
  if (failed(dim))
    return failure();
  if (tensor && rankOf(repeats) == 1 && cast<RankedTensorType>(repeats.getType()).getDimSize(0) == 1) {
    Extents extents = {frontend::extentsOf(b, tensor)[*dim]};
    repeats = frontend::broadcastTo(b, repeats, extents);
  }
  if (tensor && rankOf(repeats) == 1 &&
      failed(frontend::requireEqual(a.op, cast<RankedTensorType>(repeats.getType()).getDimSize(0),
                                    cast<RankedTensorType>(tensor.getType()).getDimSize(*dim),
                                    "elements of 'repeats'")))
    return failure();
  FailureOr<Value> positions = repeatedPositions(a, repeats, *size);
  if (failed(positions))
    return failure();
  if (tensor)
    return append(frontend::gatherSlices(a.op, tensor, *positions, *dim), results);
  results.push_back(frontend::castElements(b, *positions, elementOf(repeats)));
  return success();
}

/// Repeats every element consecutively.
static LogicalResult translateRepeatInterleave(Arguments &a, Values &results) {
  // A tensor of sizes is a number in a tensor; one of other elements counts the copies of each element.
  if (Value counts = a.tensor("repeats"); counts && !(rankOf(counts) == 0 && frontend::elementsOf(counts)))
    return repeatByTensor(a, counts, results);
  FailureOr<Value> tensor = a.required("self");
  FailureOr<OpFoldResult> repeats = a.size("repeats", 1);
  if (failed(tensor) || failed(repeats))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  (void)a.attribute("output_size"); // derivable from the operands
  if (!a.attribute("dim"))
    tensor = frontend::reshape(b, *tensor, {frontend::multiplyExtents(b, frontend::extentsOf(b, *tensor))});
  FailureOr<int64_t> dim = a.axis("dim", 0, rankOf(*tensor));
  if (failed(dim))
    return failure();
  Extents broadcasted = frontend::extentsOf(b, *tensor), joined = broadcasted;
  broadcasted.insert(broadcasted.begin() + *dim + 1, *repeats);
  joined[*dim] = frontend::multiplyExtents(b, {joined[*dim], *repeats});
  if (failed(a.shape(broadcasted)))
    return failure();
  Value unsqueezed = frontend::unsqueeze(b, *tensor, *dim + 1);
  results.push_back(frontend::reshape(b, frontend::broadcastTo(b, unsqueezed, broadcasted), joined));
  return success();
}

void torch::addShapes(frontend::Frontend &frontend) {
  for (StringRef name : {"aten._unsafe_view", "aten.reshape", "aten.reshape_as", "aten.view", "aten.view_as"})
    add(frontend, name, translateReshape);
  for (StringRef name : {"aten.expand", "aten.expand_as"})
    add(frontend, name, translateExpand);
  for (StringRef name : {"aten.mT", "aten.t", "aten.transpose"})
    add(frontend, name, translateTranspose);
  add(frontend, "aten.flatten", translateFlatten);
  add(frontend, "aten.permute", translatePermute);
  for (StringRef name : {"aten.repeat", "aten.tile"})
    add(frontend, name, translateRepeat);
  add(frontend, "aten.repeat_interleave", translateRepeatInterleave);
  add(frontend, "aten.squeeze", translateSqueeze);
  add(frontend, "aten.unflatten", translateUnflatten);
  add(frontend, "aten.unsqueeze", translateUnsqueeze);
}
