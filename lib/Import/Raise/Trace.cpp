//===- Trace.cpp - From ops on tensors to expressions ---------------------===//
#include "Trace.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace saccade::raise;

/// Limits of tracing: longer chains of ops become leaves.
static constexpr unsigned maxDepth = 200;
static constexpr size_t maxNodes = 20000;

//===----------------------------------------------------------------------===//
// Reshapes
//===----------------------------------------------------------------------===//

using Index = SmallVector<AffineExpr>;

/// The index of an element before expand_shape: the indices of each group are linearized. Inner extents must be static
/// or 1. A constant index along one of several dimensions reads a slice, which stays a tensor of its own.
static std::optional<Index> indexBeforeExpand(ArrayRef<ReassociationIndices> groups, ArrayRef<int64_t> extents,
                                              ArrayRef<AffineExpr> index, MLIRContext *context) {
  Index source;
  for (const ReassociationIndices &group : groups) {
    AffineExpr position = getAffineConstantExpr(0, context);
    int64_t stride = 1;
    SmallVector<int64_t> dims = llvm::filter_to_vector(group, [&](int64_t dim) { return extents[dim] != 1; });
    for (int64_t dim : llvm::reverse(dims)) {
      if (ShapedType::isDynamic(stride) || (dims.size() > 1 && isa<AffineConstantExpr>(index[dim])))
        return std::nullopt;
      position = position + index[dim] * stride;
      stride = ShapedType::isDynamic(extents[dim]) ? ShapedType::kDynamic : stride * extents[dim];
    }
    source.push_back(position);
  }
  return source;
}

/// The index of an element before collapse_shape: each index is delinearized into its group.
static std::optional<Index> indexBeforeCollapse(ArrayRef<ReassociationIndices> groups, ArrayRef<int64_t> extents,
                                                ArrayRef<AffineExpr> index, const Graph &graph) {
  Index source(extents.size(), getAffineConstantExpr(0, graph.getContext()));
  for (auto [group, position] : llvm::zip_equal(groups, index)) {
    SmallVector<int64_t> dims = llvm::filter_to_vector(group, [&](int64_t dim) { return extents[dim] != 1; });
    AffineExpr rest = position;
    for (int64_t dim : llvm::reverse(dims)) {
      if (dim == dims.front()) {
        source[dim] = graph.simplify(rest);
        break;
      }
      if (ShapedType::isDynamic(extents[dim]))
        return std::nullopt;
      source[dim] = graph.simplify(rest % extents[dim]);
      rest = graph.simplify(rest.floorDiv(extents[dim]));
    }
  }
  return source;
}

static std::optional<Index> indexBeforeSlice(tensor::ExtractSliceOp slice, ArrayRef<AffineExpr> index) {
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  Index source;
  unsigned next = 0;
  for (auto [dim, offset, stride] : llvm::enumerate(slice.getMixedOffsets(), slice.getMixedStrides())) {
    std::optional<int64_t> start = getConstantIntValue(offset), step = getConstantIntValue(stride);
    if (!start || !step)
      return std::nullopt;
    AffineExpr position = dropped.test(dim) ? getAffineConstantExpr(0, slice.getContext()) : index[next++];
    source.push_back(position * *step + *start);
  }
  return source;
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

Node Tracer::element(Value tensor, ArrayRef<AffineExpr> given) {
  SmallVector<AffineExpr> index = llvm::map_to_vector(given, [&](AffineExpr e) { return graph.simplify(e); });
  std::vector<const void *> key = {tensor.getAsOpaquePointer()};
  for (AffineExpr expr : index)
    key.push_back(expr.getAsOpaquePointer());
  auto [place, isNew] = known.try_emplace(key, nullptr);
  if (!isNew && place->second)
    return place->second;
  Node node = nullptr;
  if (depth < maxDepth && graph.size() < maxNodes) {
    ++depth;
    node = trace(tensor, index);
    --depth;
  }
  if (!node)
    node = graph.element(tensor, index);
  node->origins.push_back({tensor, llvm::SmallVector<AffineExpr, 4>(ArrayRef(index))});
  return known[key] = node;
}

Node Tracer::trace(Value tensor, ArrayRef<AffineExpr> index) {
  Operation *op = tensor.getDefiningOp();
  if (!op)
    return nullptr;
  Attribute attribute;
  if (matchPattern(op, m_Constant(&attribute)))
    return constant(attribute, cast<RankedTensorType>(tensor.getType()).getElementType(), index);
  auto shapeOf = [](Value value) { return cast<RankedTensorType>(value.getType()).getShape(); };
  auto through = [&](Value source, std::optional<Index> position) -> Node {
    return position ? element(source, *position) : nullptr;
  };
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
    return through(expand.getSrc(), indexBeforeExpand(expand.getReassociationIndices(), shapeOf(expand.getResult()),
                                                      index, graph.getContext()));
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op))
    return through(collapse.getSrc(),
                   indexBeforeCollapse(collapse.getReassociationIndices(), shapeOf(collapse.getSrc()), index, graph));
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
    // A slice of values computed from positions is looked through. A slice of a tensor stays a leaf because it has its
    // own extents.
    Node node = through(slice.getSource(), indexBeforeSlice(slice, index));
    bool readsElements = false;
    if (node)
      forEachNode(node,
                  [&](Node each) { readsElements |= each->kind == Expr::Element || each->kind == Expr::Softmax; });
    return readsElements ? nullptr : node;
  }
  if (auto recast = dyn_cast<tensor::CastOp>(op))
    return isa<RankedTensorType>(recast.getSource().getType()) ? element(recast.getSource(), index) : nullptr;
  if (auto splat = dyn_cast<tensor::SplatOp>(op))
    return scalar(splat.getInput(), 0);
  if (auto elements = dyn_cast<tensor::FromElementsOp>(op))
    return elements.getElements().size() == 1 ? scalar(elements.getElements()[0], 0) : nullptr;
  if (auto softmax = dyn_cast<linalg::SoftmaxOp>(op)) {
    auto loop = dyn_cast<AffineDimExpr>(index[softmax.getDimension()]);
    unsigned users = llvm::count_if(index, [&](AffineExpr e) { return loop && e.isFunctionOfDim(loop.getPosition()); });
    bool isWhole = users == 1 && graph.hasExtent(loop.getPosition(), shapeOf(tensor)[softmax.getDimension()]);
    return isWhole ? graph.softmax(element(softmax.getInput(), index), loop.getPosition(), tensor) : nullptr;
  }
  if (auto structuredOp = dyn_cast<linalg::LinalgOp>(op))
    return structured(structuredOp, cast<OpResult>(tensor).getResultNumber(), index);
  // Elementwise ops on tensors.
  if (op->hasTrait<OpTrait::Elementwise>() && op->getNumResults() == 1 && op->getNumRegions() == 0)
    return operation(*op, [&](Value operand) {
      return isa<RankedTensorType>(operand.getType()) ? element(operand, index) : scalar(operand, 0);
    });
  return nullptr;
}

Node Tracer::constant(Attribute value, Type type, ArrayRef<AffineExpr> index) {
  auto dense = dyn_cast<DenseElementsAttr>(value);
  if (!dense || !type.isIntOrIndexOrFloat())
    return nullptr;
  if (dense.isSplat())
    return isa<FloatType>(type) ? graph.number(dense.getSplatValue<APFloat>().convertToDouble())
                                : graph.integer(type, type.isInteger(1) ? dense.getSplatValue<APInt>().getZExtValue()
                                                                        : dense.getSplatValue<APInt>().getSExtValue());
  // A constant arithmetic sequence along one dimension (iota) is a position.
  ArrayRef<int64_t> shape = dense.getType().getShape();
  auto longDim = llvm::find_if(shape, [](int64_t extent) { return extent != 1; });
  bool isVector = llvm::count_if(shape, [](int64_t extent) { return extent != 1; }) == 1;
  if (!isVector || isa<FloatType>(type) || type.isInteger(1))
    return nullptr;
  SmallVector<int64_t> elements =
      llvm::map_to_vector(dense.getValues<APInt>(), [](const APInt &each) { return each.getSExtValue(); });
  int64_t step = elements[1] - elements[0];
  for (auto [i, each] : llvm::enumerate(elements))
    if (each != elements[0] + int64_t(i) * step)
      return nullptr;
  Node position = graph.position(index[longDim - shape.begin()] * step + elements[0]);
  return type.isIndex() ? position : graph.apply("arith.index_cast", type, {position});
}

//===----------------------------------------------------------------------===//
// Structured ops
//===----------------------------------------------------------------------===//

/// The positions of the loops of `op` that compute an element of its result `tensor`; null for loops that the result
/// does not have. nullopt unless the results of the map are different loops, or constants along dimensions of extent 1:
/// `op` would not write the other elements.
static std::optional<Index> loopsOf(linalg::LinalgOp op, OpResult tensor, ArrayRef<AffineExpr> index) {
  Index loops(op.getNumLoops());
  ArrayRef<int64_t> shape = cast<RankedTensorType>(tensor.getType()).getShape();
  for (auto [expr, position, extent] :
       llvm::zip_equal(op.getIndexingMapMatchingResult(tensor).getResults(), index, shape)) {
    auto loop = dyn_cast<AffineDimExpr>(expr);
    if (loop ? bool(loops[loop.getPosition()]) : !isa<AffineConstantExpr>(expr) || extent != 1)
      return std::nullopt;
    if (loop)
      loops[loop.getPosition()] = position;
  }
  return loops;
}

Node Tracer::operand(linalg::LinalgOp op, OpOperand &operand, ArrayRef<AffineExpr> loops) {
  auto type = dyn_cast<RankedTensorType>(operand.get().getType());
  if (!type)
    return scalar(operand.get(), 0);
  Index index;
  for (auto [expr, extent] : llvm::zip_equal(op.getMatchingIndexingMap(&operand).getResults(), type.getShape())) {
    index.push_back(graph.simplify(expr.replaceDims(loops)));
    // The verifier lets d mod n read a part of a longer dimension. Such a part must not look like the whole.
    auto loop = dyn_cast<AffineDimExpr>(index.back());
    if (loop && !isa<AffineDimExpr>(expr) && graph.getExtent(loop.getPosition()) != extent)
      return nullptr;
  }
  return element(operand.get(), index);
}

Node Tracer::structured(linalg::LinalgOp op, unsigned result, ArrayRef<AffineExpr> index) {
  bool isPointwise = op.getNumParallelLoops() == op.getNumLoops();
  std::optional<Index> loops = loopsOf(op, op->getResult(result), index);
  if (!isPointwise || !loops || llvm::is_contained(*loops, AffineExpr()))
    return nullptr;
  Block &block = *op.getBlock();
  DenseMap<Value, Node> nodes;
  for (OpOperand &each : op->getOpOperands()) {
    BlockArgument argument = op.getMatchingBlockArgument(&each);
    if (!argument.use_empty() && !(nodes[argument] = operand(op, each, *loops)))
      return nullptr;
  }
  if (!body(block, *loops, nodes))
    return nullptr;
  Value yielded = block.getTerminator()->getOperand(result);
  if (Node known = nodes.lookup(yielded))
    return known;
  return scalar(yielded, 0);
}

Node Tracer::reduced(Node leaf, ArrayRef<StringRef> combiners, unsigned key, Operation **found) {
  if (leaf->kind != Expr::Element)
    return nullptr;
  auto op = leaf->access.tensor.getDefiningOp<linalg::LinalgOp>();
  if (!op || op.getNumReductionLoops() != 1 || op.getNumDpsInits() != 1)
    return nullptr;
  std::optional<Index> loops = loopsOf(op, cast<OpResult>(leaf->access.tensor), leaf->access.index);
  Block &block = *op.getBlock();
  Operation *combine = block.getTerminator()->getOperand(0).getDefiningOp();
  BlockArgument carried = op.getMatchingBlockArgument(op.getDpsInitOperand(0));
  if (!loops || !combine || combine->getNumOperands() != 2 || !carried.hasOneUse() ||
      !llvm::is_contained(combiners, combine->getName().getStringRef()) ||
      !llvm::is_contained(combine->getOperands(), carried) || leaf->dependsOn(key))
    return nullptr;
  // A loop of another length, as over repeated keys, reduces other elements.
  SmallVector<int64_t> extents = getLoopExtents(op);
  for (auto [loop, kind, extent] : llvm::zip_equal(*loops, op.getIteratorTypesArray(), extents)) {
    bool isReduction = kind == utils::IteratorType::reduction;
    if (isReduction == bool(loop) || (isReduction && !graph.hasExtent(key, extent)))
      return nullptr;
    if (isReduction)
      loop = getAffineDimExpr(key, graph.getContext());
  }
  DenseMap<Value, Node> nodes = {{carried, graph.scalar(op.getDpsInits()[0])}};
  for (OpOperand *each : op.getDpsInputOperands())
    if (!(nodes[op.getMatchingBlockArgument(each)] = operand(op, *each, *loops)))
      return nullptr;
  if (!body(block, *loops, nodes))
    return nullptr;
  if (found)
    *found = op;
  return nodes.lookup(combine->getOperand(combine->getOperand(0) == carried ? 1 : 0));
}

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

bool Tracer::body(Block &block, ArrayRef<AffineExpr> loops, DenseMap<Value, Node> &nodes) {
  for (Operation &op : block.without_terminator()) {
    if (op.getNumResults() != 1 || op.getNumRegions() != 0)
      return false;
    Node node = nullptr;
    if (auto position = dyn_cast<linalg::IndexOp>(op))
      node = graph.position(loops[position.getDim()]);
    else
      node = operation(op, [&](Value operand) {
        Node known = nodes.lookup(operand);
        return known || operand.getParentBlock() == &block ? known : scalar(operand, 0);
      });
    if (!node)
      return false;
    nodes[op.getResult(0)] = node;
  }
  return true;
}

Node Tracer::operation(Operation &op, llvm::function_ref<Node(Value)> nodeOf) {
  Attribute attribute;
  if (matchPattern(&op, m_Constant(&attribute))) {
    if (auto real = dyn_cast<FloatAttr>(attribute))
      return graph.number(real.getValueAsDouble());
    auto integer = dyn_cast<IntegerAttr>(attribute);
    return integer
               ? graph.integer(integer.getType(), integer.getType().isInteger(1) ? integer.getValue().getZExtValue()
                                                                                 : integer.getValue().getSExtValue())
               : nullptr;
  }
  if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
    SmallVector<Node> operands = {graph.scalar(extract.getTensor())};
    for (Value index : extract.getIndices()) {
      operands.push_back(nodeOf(index));
      if (!operands.back())
        return nullptr;
    }
    if (llvm::all_of(llvm::drop_begin(operands), [](Node node) { return node->kind == Expr::Position; }))
      return element(extract.getTensor(),
                     llvm::map_to_vector(llvm::drop_begin(operands), [](Node node) { return node->position; }));
    return graph.apply(op.getName().getStringRef(), op.getResult(0).getType(), operands);
  }
  if (!isa_and_nonnull<arith::ArithDialect, math::MathDialect>(op.getDialect()) || isa<arith::BitcastOp>(op))
    return nullptr;
  Type type = getElementTypeOrSelf(op.getResult(0).getType());
  if (!type.isIntOrIndexOrFloat())
    return nullptr;
  SmallVector<Node> operands;
  for (Value operand : op.getOperands()) {
    operands.push_back(nodeOf(operand));
    if (!operands.back())
      return nullptr;
  }
  return graph.apply(op.getName().getStringRef(), type, operands, op.getAttrDictionary());
}

Node Tracer::scalar(Value value, unsigned steps) {
  Operation *op = value.getDefiningOp();
  if (op && steps < 16 && op->getNumResults() == 1 && op->getNumRegions() == 0)
    if (Node node = operation(*op, [&](Value operand) { return scalar(operand, steps + 1); }))
      return node;
  return graph.scalar(value);
}

//===----------------------------------------------------------------------===//
// Contractions
//===----------------------------------------------------------------------===//

bool saccade::raise::isContraction(linalg::LinalgOp op) {
  if (op.getNumDpsInputs() != 2 || op.getNumDpsInits() != 1 || op.getNumReductionLoops() == 0 ||
      !op.hasPureTensorSemantics())
    return false;
  auto uncast = [](Value value) {
    while (isa_and_nonnull<arith::ExtFOp, arith::TruncFOp>(value.getDefiningOp()))
      value = value.getDefiningOp()->getOperand(0);
    return value;
  };
  // A loop that the result has must be parallel, and no other: else the op is no sum of products.
  AffineMap result = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  for (auto [loop, kind] : llvm::enumerate(op.getIteratorTypesArray()))
    if (result.isFunctionOfDim(loop) != (kind == utils::IteratorType::parallel))
      return false;
  Block &block = *op.getBlock();
  if (block.getNumArguments() != 3)
    return false;
  auto sum = block.getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!sum)
    return false;
  bool isFirst = sum.getLhs() == block.getArgument(2);
  auto product = uncast(isFirst ? sum.getRhs() : sum.getLhs()).getDefiningOp<arith::MulFOp>();
  if (!product || (!isFirst && sum.getRhs() != block.getArgument(2)))
    return false;
  Value lhs = uncast(product.getLhs()), rhs = uncast(product.getRhs());
  return (lhs == block.getArgument(0) && rhs == block.getArgument(1)) ||
         (lhs == block.getArgument(1) && rhs == block.getArgument(0));
}

namespace {
/// Looks up extents in the tensors that a tensor is computed from if its type does not have them.
class ExtentFinder {
public:
  int64_t find(Value tensor, int64_t dim) {
    int64_t extent = cast<RankedTensorType>(tensor.getType()).getDimSize(dim);
    if (!ShapedType::isDynamic(extent) || seen.size() > 64 || !seen.insert({tensor, dim}).second)
      return extent;
    if (auto recast = tensor.getDefiningOp<tensor::CastOp>();
        recast && isa<RankedTensorType>(recast.getSource().getType()))
      return find(recast.getSource(), dim);
    auto op = tensor.getDefiningOp<linalg::LinalgOp>();
    if (!op)
      return extent;
    auto loop = dyn_cast<AffineDimExpr>(op.getIndexingMapMatchingResult(cast<OpResult>(tensor)).getResult(dim));
    return loop ? find(op, loop) : extent;
  }

  int64_t find(linalg::LinalgOp op, AffineDimExpr loop) {
    for (OpOperand &operand : op->getOpOperands())
      if (std::optional<unsigned> dim = op.getMatchingIndexingMap(&operand).getResultPosition(loop))
        if (int64_t extent = find(operand.get(), *dim); !ShapedType::isDynamic(extent))
          return extent;
    return ShapedType::kDynamic;
  }

private:
  DenseSet<std::pair<Value, int64_t>> seen;
};
} // namespace

SmallVector<int64_t> saccade::raise::getLoopExtents(linalg::LinalgOp op) {
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  for (auto [loop, extent] : llvm::enumerate(extents))
    if (ShapedType::isDynamic(extent))
      extent = ExtentFinder().find(op, cast<AffineDimExpr>(getAffineDimExpr(loop, op.getContext())));
  return extents;
}

std::optional<double> saccade::raise::getFilledNumber(Value value) {
  // A fill may be written as a generic op.
  if (auto fill = value.getDefiningOp<linalg::LinalgOp>()) {
    Block *block = fill.getBlock();
    value = block->getTerminator()->getOperand(cast<OpResult>(value).getResultNumber());
    if (auto argument = dyn_cast<BlockArgument>(value); argument && argument.getOwner() == block)
      value = fill.getMatchingOpOperand(argument)->get();
    if (fill.getNumReductionLoops() != 0)
      return std::nullopt;
  }
  Attribute number;
  if (!matchPattern(value, m_Constant(&number)))
    return std::nullopt;
  if (auto splat = dyn_cast<SplatElementsAttr>(number); splat && isa<FloatType>(splat.getElementType()))
    return splat.getSplatValue<APFloat>().convertToDouble();
  auto real = dyn_cast<FloatAttr>(number);
  return real ? std::optional(real.getValueAsDouble()) : std::nullopt;
}
