//===- BuildAttention.cpp - Build the raised attention op -----------------===//
//
// Builds attn.attention from named operands and regions, followed by the ops that restore the shape, dimension order
// and type of the replaced tensor.
//
//===----------------------------------------------------------------------===//
#include "BuildAttention.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "saccade/Dialect/Attn/IR/AttentionFields.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::raise;

/// The label of an output dimension; empty for unnamed loops with trip count 1.
static Label labelOf(unsigned loop, const Loops &loops, const NamedLoops &names) {
  return loop == loops.valueDepth || names.has(loop) ? Label{loop} : Label{};
}

/// The loops of the output dimensions: in the order of the P·V contraction if its batch and head dimensions are
/// adjacent, else in the order of the query.
static SmallVector<unsigned> orderOutput(AffineMap map, const Loops &loops, const NamedLoops &names,
                                         const Labelled &query) {
  SmallVector<unsigned> own, asQuery;
  SmallVector<Label> labels;
  for (AffineExpr expr : map.getResults()) {
    own.push_back(cast<AffineDimExpr>(expr).getPosition());
    labels.push_back(labelOf(own.back(), loops, names));
  }
  if (groupDims(labels, names, names.query, loops.valueDepth))
    return own;
  for (unsigned loop : loops.rows)
    if (!query.has(loop))
      asQuery.push_back(loop);
  for (Label label : query.labels)
    if (label.loop)
      asQuery.push_back(*label.loop == loops.depth ? loops.valueDepth : *label.loop);
  return asQuery;
}

/// Converts the output of `op`, whose dimensions are `grouping` of the loops `order`, to the shape and type of the
/// result of `values`.
static Value buildResult(OpBuilder &b, attn::AttentionOp op, linalg::LinalgOp values, const Graph &graph,
                         const Grouping &grouping, ArrayRef<unsigned> order) {
  Location loc = op.getLoc();
  Value result = op.getOutput();
  auto type = cast<RankedTensorType>(values->getResult(0).getType());
  Value init = values.getDpsInits()[0];
  AffineMap map = values.getMatchingIndexingMap(values.getDpsInitOperand(0));
  if (op.getOutputDims().size() != grouping.dims.size()) {
    SmallVector<ReassociationIndices> groups = {{0, 1}};
    for (int64_t dim = 2; dim < op.getOutputDims().size(); ++dim)
      groups.push_back({dim});
    result = tensor::CollapseShapeOp::create(b, loc, result, groups);
  }
  SmallVector<int64_t> permutation, shape;
  SmallVector<OpFoldResult> sizes;
  for (unsigned loop : order) {
    // An extent may be known from another operand only.
    unsigned dim = *map.getResultPosition(b.getAffineDimExpr(loop));
    shape.push_back(graph.getExtent(loop));
    sizes.push_back(ShapedType::isDynamic(shape.back()) ? tensor::getMixedSize(b, loc, init, dim)
                                                        : b.getIndexAttr(shape.back()));
  }
  for (AffineExpr expr : map.getResults())
    permutation.push_back(llvm::find(order, cast<AffineDimExpr>(expr).getPosition()) - order.begin());
  if (grouping.groups.size() != order.size())
    result = tensor::ExpandShapeOp::create(b, loc, RankedTensorType::get(shape, getElementTypeOrSelf(result)), result,
                                           grouping.groups, sizes);
  if (!llvm::is_sorted(permutation)) {
    Value empty = tensor::EmptyOp::create(b, loc, applyPermutation(sizes, ArrayRef<int64_t>(permutation)),
                                          getElementTypeOrSelf(result));
    result = linalg::TransposeOp::create(b, loc, result, empty, permutation)->getResult(0);
  }
  if (getElementTypeOrSelf(result) != type.getElementType()) {
    Type cast = RankedTensorType::get(llvm::cast<RankedTensorType>(result.getType()).getShape(), type.getElementType());
    bool widens = type.getElementTypeBitWidth() > getElementTypeOrSelf(result).getIntOrFloatBitWidth();
    result = widens ? arith::ExtFOp::create(b, loc, cast, result).getResult()
                    : arith::TruncFOp::create(b, loc, cast, result).getResult();
  }
  return result.getType() == type ? result : tensor::CastOp::create(b, loc, type, result);
}

/// The shape of an output whose dimensions are `grouping` of the loops `order`.
static SmallVector<int64_t> shapeOf(const Graph &graph, const Grouping &grouping, ArrayRef<unsigned> order) {
  SmallVector<int64_t> shape;
  for (const ReassociationIndices &group : grouping.groups) {
    shape.push_back(1);
    for (int64_t dim : group) {
      int64_t extent = graph.getExtent(order[dim]);
      bool isDynamic = ShapedType::isDynamic(shape.back()) || ShapedType::isDynamic(extent);
      shape.back() = isDynamic ? ShapedType::kDynamic : shape.back() * extent;
    }
  }
  return shape;
}

attn::AttentionOp saccade::raise::replaceByAttention(linalg::LinalgOp values, const Graph &graph, const Loops &loops,
                                                     const NamedLoops &names, AttentionParts &parts) {
  AffineMap map = values.getMatchingIndexingMap(values.getDpsInitOperand(0));
  SmallVector<unsigned> order = orderOutput(map, loops, names, parts.query);
  auto labels = llvm::map_to_vector(order, [&](unsigned loop) { return labelOf(loop, loops, names); });
  std::optional<Grouping> grouping = groupDims(labels, names, names.query, loops.valueDepth);
  if (!grouping)
    return nullptr;

  ImplicitLocOpBuilder b(values.getLoc(), values);
  attn::AttentionFields fields;
  std::tie(fields.query, fields.queryDims) = nameOperand(b, b.getLoc(), parts.query, names, names.query, loops.depth);
  std::tie(fields.key, fields.keyDims) = nameOperand(b, b.getLoc(), parts.key, names, names.key, loops.depth);
  std::tie(fields.value, fields.valueDims) =
      nameOperand(b, b.getLoc(), parts.value, names, names.key, loops.valueDepth);
  SmallVector<int64_t> shape = shapeOf(graph, *grouping, order);
  SmallVector<attn::Dim> dims = grouping->dims;
  if (!llvm::is_contained(dims, attn::Dim::Seq)) {
    dims.insert(dims.begin(), attn::Dim::Seq);
    shape.insert(shape.begin(), 1);
  }
  Type inputElement = getElementTypeOrSelf(fields.query), resultElement = getElementTypeOrSelf(values->getResult(0));
  Type element = resultElement == inputElement ? inputElement : attn::getScoreType(inputElement);
  fields.captures = parts.captures;
  fields.outputDims = attn::DimsAttr::get(b.getContext(), dims);
  fields.scale = b.getF64FloatAttr(parts.scale);
  fields.output = RankedTensorType::get(shape, element);
  attn::AttentionOp op = fields.create(b, b.getLoc());
  for (auto [region, block] : {std::pair(&op.getScore(), &parts.score), std::pair(&op.getMask(), &parts.mask),
                               std::pair(&op.getWeight(), &parts.weight)})
    if (*block)
      region->push_back(block->release());
  values->getResult(0).replaceAllUsesWith(buildResult(b, op, values, graph, *grouping, order));
  values->erase();
  return op;
}
