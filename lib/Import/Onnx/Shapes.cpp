//===- Shapes.cpp - ONNX shape operators ----------------------------------===//
#include "Onnx.h"
#include "saccade/Import/Common/Views.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using frontend::Extents;

static LogicalResult translateShape(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 1)))
    return failure();
  int64_t rank = rankOf(op.operand(0));
  auto bound = [&](StringRef name, int64_t defaultValue) {
    int64_t value = op.integer(name, defaultValue);
    return std::clamp<int64_t>(value < 0 ? value + rank : value, 0, rank);
  };
  int64_t start = bound("start", 0), end = std::max(bound("end", rank), start);
  Extents extents = frontend::extentsOf(op.builder(), op.operand(0));
  results.push_back(
      frontend::fromExtents(op.builder(), ArrayRef(extents).slice(start, end - start), op.builder().getI64Type()));
  return success();
}

static LogicalResult translateSize(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 1)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  OpFoldResult size = frontend::multiplyExtents(b, frontend::extentsOf(b, op.operand(0)));
  results.push_back(frontend::reshape(b, frontend::fromExtents(b, {size}, b.getI64Type()), {}));
  return success();
}

static LogicalResult translateReshape(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 2)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  FailureOr<Extents> given = requireExtents(op, 1, "the shape");
  if (failed(given))
    return failure();
  Extents from = frontend::extentsOf(b, op.operand(0)), to = *given;
  bool keepsZero = op.integer("allowzero", 0) != 0;
  for (auto [i, extent] : llvm::enumerate(to)) {
    if (keepsZero || !isConstantIntValue(extent, 0))
      continue;
    if (i >= from.size())
      return op.error() << "extent " << i << " of the shape is 0 (copied from the input), but the input is "
                        << op.operand(0).getType();
    extent = from[i];
  }
  return append(frontend::reshapeInferred(op, op.operand(0), to), results);
}

static LogicalResult translateFlatten(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 1)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  int64_t rank = rankOf(op.operand(0)), axis = op.integer("axis", 1);
  if (axis < -rank || axis > rank)
    return op.error() << "axis " << axis << " is outside of " << op.operand(0).getType();
  Extents extents = frontend::extentsOf(b, op.operand(0));
  size_t cut = axis < 0 ? axis + rank : axis;
  results.push_back(frontend::reshape(b, op.operand(0),
                                      {frontend::multiplyExtents(b, ArrayRef(extents).take_front(cut)),
                                       frontend::multiplyExtents(b, ArrayRef(extents).drop_front(cut))}));
  return success();
}

static LogicalResult translateSqueeze(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 2)))
    return failure();
  auto type = cast<RankedTensorType>(op.operand(0).getType());
  FailureOr<std::optional<SmallVector<int64_t>>> given = integersOf(op, 1, "axes");
  if (failed(given))
    return failure();
  SmallVector<int64_t> dims;
  if (*given) {
    FailureOr<SmallVector<int64_t>> axes = resolveAxes(op, **given, type.getRank());
    if (failed(axes))
      return failure();
    dims = *axes;
  } else {
    for (int64_t i = 0; i < type.getRank(); ++i)
      if (type.getDimSize(i) == 1)
        dims.push_back(i);
  }
  for (int64_t dim : dims)
    if (!type.isDynamicDim(dim) && type.getDimSize(dim) != 1)
      return op.error() << "dimension " << dim << " of " << type << " has " << type.getDimSize(dim) << ", expected 1";
  results.push_back(frontend::squeeze(op.builder(), op.operand(0), dims));
  return success();
}

static LogicalResult translateUnsqueeze(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 2)))
    return failure();
  FailureOr<std::optional<SmallVector<int64_t>>> given = integersOf(op, 1, "axes");
  if (failed(given))
    return failure();
  if (!*given)
    return op.error() << "axes are missing";
  FailureOr<SmallVector<int64_t>> dims = resolveAxes(op, **given, rankOf(op.operand(0)) + (*given)->size());
  if (failed(dims))
    return failure();
  llvm::sort(*dims);
  results.push_back(frontend::unsqueeze(op.builder(), op.operand(0), *dims));
  return success();
}

static LogicalResult translateTranspose(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 1)))
    return failure();
  int64_t rank = rankOf(op.operand(0));
  SmallVector<int64_t> permutation =
      op.integers("perm").value_or(llvm::to_vector(llvm::reverse(llvm::seq<int64_t>(0, rank))));
  if (static_cast<int64_t>(permutation.size()) != rank || !isPermutationVector(permutation))
    return op.error() << "perm does not permute the dimensions of " << op.operand(0).getType();
  results.push_back(frontend::transpose(op.builder(), op.operand(0), permutation));
  return success();
}

/// Bidirectional broadcast: extent 1 in the shape keeps the extent of the input.
static LogicalResult translateExpand(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 2)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  FailureOr<Extents> shape = requireShape(op, 1, "the shape");
  if (failed(shape))
    return failure();
  Extents shapes[] = {frontend::extentsOf(b, op.operand(0)), *shape};
  FailureOr<Extents> extents = frontend::broadcastExtents(b, shapes);
  if (failed(extents))
    return op.error() << op.operand(0).getType() << " does not broadcast to the shape";
  results.push_back(frontend::broadcastTo(b, op.operand(0), *extents));
  return success();
}

static LogicalResult translateTile(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 2)))
    return failure();
  FailureOr<Extents> repeats = requireExtents(op, 1, "the repeats");
  if (failed(repeats))
    return failure();
  if (static_cast<int64_t>(repeats->size()) != rankOf(op.operand(0)))
    return op.error() << "found " << repeats->size() << " repeats, expected one for each dimension of "
                      << op.operand(0).getType();
  return append(frontend::tile(op, op.operand(0), *repeats), results);
}

static LogicalResult translateConstantOfShape(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 1)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  FailureOr<Extents> extents = requireShape(op, 0, "the shape");
  if (failed(extents))
    return failure();
  TypedAttr value = b.getF32FloatAttr(0);
  if (auto given = dyn_cast_or_null<DenseElementsAttr>(op.attribute("value"))) {
    if (given.getNumElements() != 1)
      return op.error() << "value has " << given.getNumElements() << " elements, expected 1";
    value = cast<TypedAttr>(*given.getValues<Attribute>().begin());
  }
  results.push_back(frontend::filled(b, *extents, value));
  return success();
}

/// start, start + delta, … before limit. The length must be computable from shapes.
static LogicalResult translateRange(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 3, 3)))
    return failure();
  Type element = elementOf(op.operand(0));
  if (!isa<IntegerType>(element))
    return op.error() << "a range of " << element << " is not supported, expected integers";
  SmallVector<OpFoldResult> bounds;
  for (auto [i, role] : llvm::enumerate(ArrayRef<StringRef>{"start", "limit", "delta"})) {
    FailureOr<OpFoldResult> bound = requireExtent(op, i, role);
    if (failed(bound))
      return failure();
    bounds.push_back(*bound);
  }
  return append(frontend::makeRange(op, bounds[0], bounds[1], bounds[2], element), results);
}

void onnx::addShapes(frontend::Frontend &frontend) {
  frontend.translators["ConstantOfShape"] = translateConstantOfShape;
  frontend.translators["Expand"] = translateExpand;
  frontend.translators["Flatten"] = translateFlatten;
  frontend.translators["Range"] = translateRange;
  frontend.translators["Reshape"] = translateReshape;
  frontend.translators["Shape"] = translateShape;
  frontend.translators["Size"] = translateSize;
  frontend.translators["Squeeze"] = translateSqueeze;
  frontend.translators["Tile"] = translateTile;
  frontend.translators["Transpose"] = translateTranspose;
  frontend.translators["Unsqueeze"] = translateUnsqueeze;
}
