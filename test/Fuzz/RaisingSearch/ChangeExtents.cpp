//===- ChangeExtents.cpp - Near misses that read other extents ------------===//
#include "Mutator.h"

using namespace mlir;
using namespace saccade::search;

Value Mutator::reindex(Value input, ArrayRef<AffineExpr> index, ArrayRef<int64_t> extents) {
  Location loc = function.getLoc();
  Type element = getElementTypeOrSelf(input);
  Value empty = tensor::EmptyOp::create(b, loc, extents, element);
  AffineMap maps[] = {AffineMap::get(extents.size(), 0, index, b.getContext()),
                      b.getMultiDimIdentityMap(extents.size())};
  SmallVector<utils::IteratorType> kinds(extents.size(), utils::IteratorType::parallel);
  auto generic = linalg::GenericOp::create(
      b, loc, RankedTensorType::get(extents, element), input, empty, maps, kinds,
      [&](OpBuilder &nested, Location, ValueRange values) { linalg::YieldOp::create(nested, loc, values[0]); });
  return generic.getResult(0);
}

/// The reassociation of a tensor of `rank` dimensions in which `dim` stands for two.
static SmallVector<ReassociationIndices> splitDim(unsigned rank, unsigned dim) {
  SmallVector<ReassociationIndices> groups;
  for (unsigned i = 0; i < rank; ++i) {
    groups.push_back({int64_t(i) + (i > dim)});
    if (i == dim)
      groups.back().push_back(dim + 1);
  }
  return groups;
}

Value Mutator::repeat(Value input, unsigned dim, int64_t times, bool isTiled) {
  auto type = cast<RankedTensorType>(input.getType());
  unsigned rank = type.getRank();
  SmallVector<int64_t> wide(type.getShape()), shape(wide);
  wide[dim] = isTiled ? times : shape[dim];
  wide.insert(wide.begin() + dim + 1, isTiled ? shape[dim] : times);
  shape[dim] *= times;
  SmallVector<AffineExpr> index;
  for (unsigned i = 0; i < rank; ++i)
    index.push_back(b.getAffineDimExpr(i < dim ? i : i > dim || isTiled ? i + 1 : i));
  return tensor::CollapseShapeOp::create(b, function.getLoc(), RankedTensorType::get(shape, type.getElementType()),
                                         reindex(input, index, wide), splitDim(rank, dim));
}

Value Mutator::readPart(Value input, unsigned dim, unsigned how) {
  auto type = cast<RankedTensorType>(input.getType());
  unsigned rank = type.getRank();
  SmallVector<int64_t> shape(type.getShape());
  int64_t half = shape[dim] / 2;
  shape[dim] = half;
  SmallVector<AffineExpr> index;
  for (unsigned i = 0; i < rank; ++i)
    index.push_back(b.getAffineDimExpr(i));
  AffineExpr position = index[dim];
  if (how < 4) {
    // One of two halves, or every other element, by the index 0 or 1 of a dimension of its own.
    bool isOuter = how < 2;
    SmallVector<int64_t> split(shape);
    split.insert(split.begin() + dim + !isOuter, 2);
    Value expanded = tensor::ExpandShapeOp::create(
        b, function.getLoc(), RankedTensorType::get(split, type.getElementType()), input, splitDim(rank, dim));
    index.insert(index.begin() + dim + !isOuter, b.getAffineConstantExpr(how % 2));
    return reindex(expanded, index, shape);
  }
  const AffineExpr positions[] = {position % half, position.floorDiv(2), position * 2, position + half};
  index[dim] = positions[how - 4];
  return reindex(input, index, shape);
}

/// A reduction runs over repeated elements, or over a part of them.
std::string Mutator::otherReduction() {
  auto op = cast_or_null<linalg::LinalgOp>(pickOp([](Operation *op) {
    auto structured = dyn_cast<linalg::LinalgOp>(op);
    return structured && structured.getNumReductionLoops() != 0;
  }));
  if (!op)
    return "";
  SmallVector<unsigned> loops;
  op.getReductionDims(loops);
  unsigned loop = random.pick(loops), how = random.below(readings);
  bool isPart = random.chance(0.5), isTiled = random.chance(0.5);
  b.setInsertionPoint(op);
  for (OpOperand *operand : op.getDpsInputOperands()) {
    std::optional<unsigned> dim = op.getMatchingIndexingMap(operand).getResultPosition(b.getAffineDimExpr(loop));
    auto type = dyn_cast<RankedTensorType>(operand->get().getType());
    if (!dim)
      continue;
    if (!type.hasStaticShape() || type.getDimSize(*dim) == 0 || (isPart && type.getDimSize(*dim) % 2 != 0))
      return "";
    operand->set(isPart ? readPart(operand->get(), *dim, how) : repeat(operand->get(), *dim, 2, isTiled));
  }
  return nameOf(op) + " reduces " + (isPart ? "a part" : isTiled ? "tiled elements" : "repeated elements");
}

/// An argument is a part of a longer one, or all arguments of this type are.
std::string Mutator::longerArgument() {
  BlockArgument chosen = random.pick(function.getArguments());
  auto type = dyn_cast<RankedTensorType>(chosen.getType());
  if (!type || type.getRank() == 0 || !type.hasStaticShape())
    return "";
  unsigned dim = random.below(type.getRank()), how = random.below(readings);
  bool isAlone = random.chance(0.5);
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] *= 2;
  b.setInsertionPointToStart(&function.getBody().front());
  for (BlockArgument argument : function.getArguments()) {
    if (argument != chosen && (isAlone || argument.getType() != type))
      continue;
    argument.setType(RankedTensorType::get(shape, type.getElementType()));
    function.setArgAttr(argument.getArgNumber(), "test.shape", b.getDenseI64ArrayAttr(shape));
    SmallVector<OpOperand *> uses = llvm::map_to_vector(argument.getUses(), [](OpOperand &use) { return &use; });
    Value part = readPart(argument, dim, how);
    for (OpOperand *use : uses)
      use->set(part);
  }
  function.setType(b.getFunctionType(function.getBody().getArgumentTypes(), function.getResultTypes()));
  return "argument " + std::to_string(chosen.getArgNumber()) + (isAlone ? "" : " and its like") +
         " is a part of a longer one along dimension " + std::to_string(dim);
}
