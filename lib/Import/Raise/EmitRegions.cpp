//===- EmitRegions.cpp - Emit expressions as regions of attention ---------===//
//
// Positions become region arguments, tensor elements become reads of captures. Costly subexpressions that do not depend
// on the score are read from the tensor that the graph computes, unless they depend on positions only.
//
//===----------------------------------------------------------------------===//
#include "EmitRegions.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::raise;

std::unique_ptr<Block> RegionEmitter::emit(Node root, Node given) {
  auto made = std::make_unique<Block>();
  OpBuilder builder(graph.getContext());
  builder.setInsertionPointToStart(made.get());
  variable = given;
  b = &builder;
  block = made.get();
  values.clear();
  if (variable)
    block->addArgument(scoreType, loc);
  firstIndex = block->getNumArguments();
  for (unsigned i = 0; i < 4; ++i)
    block->addArgument(builder.getIndexType(), loc);
  for (Value captured : captures)
    block->addArgument(captured.getType(), loc);
  blocks.push_back(block);
  Value result = emitNode(root);
  if (!result)
    return nullptr;
  attn::YieldOp::create(builder, loc, ValueRange(result));
  return made;
}

Value RegionEmitter::fail(const Twine &why) {
  if (reason.empty())
    reason = why.str();
  return {};
}

Value RegionEmitter::capture(Value value) {
  auto known = llvm::find(captures, value);
  unsigned number = known - captures.begin();
  if (known == captures.end()) {
    captures.push_back(value);
    for (Block *each : blocks)
      each->addArgument(value.getType(), loc);
  }
  return block->getArgument(firstIndex + 4 + number);
}

/// Whether the position along `loop` can be computed in a region.
bool RegionEmitter::isKnown(unsigned loop) const {
  if (loop == names.key || graph.getExtent(loop) == 1)
    return true;
  for (ArrayRef<unsigned> group : {ArrayRef(names.batch), ArrayRef(names.head), ArrayRef(names.query)})
    // Only the outermost loop of a group may be dynamic: the others are remainders by their extents.
    if (auto *found = llvm::find(group, loop); found != group.end())
      return llvm::none_of(group.drop_front(std::max<ptrdiff_t>(found - group.begin(), 1)),
                           [&](unsigned inner) { return ShapedType::isDynamic(graph.getExtent(inner)); });
  return false;
}

Value RegionEmitter::loop(unsigned loop) {
  if (loop == names.key)
    return block->getArgument(firstIndex + 3);
  auto makeIndex = [&](int64_t value) { return arith::ConstantIndexOp::create(*b, loc, value).getResult(); };
  for (auto [argument, loops] :
       llvm::enumerate(ArrayRef<SmallVector<unsigned>>{names.batch, names.head, names.query})) {
    auto *found = llvm::find(loops, loop);
    if (found == loops.end())
      continue;
    // Delinearize the position.
    int64_t stride = 1;
    for (unsigned inner : ArrayRef(loops).drop_front(found - loops.begin() + 1))
      stride *= graph.getExtent(inner);
    Value position = block->getArgument(firstIndex + argument);
    if (stride != 1)
      position = arith::FloorDivSIOp::create(*b, loc, position, makeIndex(stride));
    if (found != loops.begin())
      position = arith::RemSIOp::create(*b, loc, position, makeIndex(graph.getExtent(loop)));
    return position;
  }
  return makeIndex(0);
}

Value RegionEmitter::index(AffineExpr expr) {
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return loop(dim.getPosition());
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return arith::ConstantIndexOp::create(*b, loc, constant.getValue());
  auto both = cast<AffineBinaryOpExpr>(expr);
  Value lhs = index(both.getLHS()), rhs = index(both.getRHS());
  switch (both.getKind()) {
  case AffineExprKind::Add:
    return arith::AddIOp::create(*b, loc, lhs, rhs);
  case AffineExprKind::Mul:
    return arith::MulIOp::create(*b, loc, lhs, rhs);
  case AffineExprKind::FloorDiv:
    return arith::FloorDivSIOp::create(*b, loc, lhs, rhs);
  case AffineExprKind::CeilDiv:
    return arith::CeilDivSIOp::create(*b, loc, lhs, rhs);
  default:
    // The remainder of a negative position is not negative.
    if (!graph.mayBeNegative(both.getLHS()))
      return arith::RemSIOp::create(*b, loc, lhs, rhs);
    Value quotient = arith::FloorDivSIOp::create(*b, loc, lhs, rhs);
    return arith::SubIOp::create(*b, loc, lhs, arith::MulIOp::create(*b, loc, quotient, rhs));
  }
}

Value RegionEmitter::toScore(Value value) {
  auto type = dyn_cast<FloatType>(value.getType());
  if (!type || type == scoreType)
    return value;
  if (type.getWidth() < cast<FloatType>(scoreType).getWidth())
    return arith::ExtFOp::create(*b, loc, scoreType, value);
  return arith::TruncFOp::create(*b, loc, scoreType, value);
}

Value RegionEmitter::read(const Access &access) {
  SmallVector<Value> indices;
  Value tensor = capture(access.tensor);
  for (AffineExpr expr : access.index)
    indices.push_back(index(expr));
  return toScore(tensor::ExtractOp::create(*b, loc, tensor, indices));
}

/// The tensor element that holds `node`, if reading it is cheaper than recomputing.
const Access *RegionEmitter::findComputed(Node node) {
  if (!node->readsTensors || (node->kind != Expr::Element && !node->isCostly))
    return nullptr;
  bool usesVariable = false;
  forEachNode(node, [&](Node each) { usesVariable |= each == variable; });
  if (usesVariable)
    return nullptr;
  for (const Access &origin : node->origins)
    if (llvm::all_of(origin.index, [&](AffineExpr expr) {
          for (unsigned loop = 0; loop < graph.getNumLoops(); ++loop)
            if (expr.isFunctionOfDim(loop) && !isKnown(loop))
              return false;
          return true;
        }))
      return &origin;
  return nullptr;
}

Value RegionEmitter::emitNode(Node node) {
  if (node == variable)
    return block->getArgument(0);
  if (Value known = values.lookup(node))
    return known;
  auto build = [&]() -> Value {
    if (node->kind == Expr::Number)
      return arith::ConstantOp::create(*b, loc, b->getFloatAttr(scoreType, node->number));
    if (node->kind == Expr::Integer)
      return arith::ConstantOp::create(*b, loc, b->getIntegerAttr(node->type, node->integer));
    for (unsigned loop = 0; loop < graph.getNumLoops(); ++loop)
      if (node->dependsOn(loop) && !isKnown(loop))
        return fail("a part of the score depends on more than batch, head, query and key");
    if (const Access *access = findComputed(node))
      return read(*access);
    if (node->kind == Expr::Position)
      return index(node->position);
    if (node->kind == Expr::Scalar)
      return toScore(capture(node->value));
    if (node->kind != Expr::Apply)
      return fail("a part of the score is not an elementwise function of tensors");
    OperationState state(loc, node->name);
    for (Node operand : node->operands) {
      state.operands.push_back(emitNode(operand));
      if (!state.operands.back())
        return {};
    }
    Type type = node->isReal() ? scoreType : node->type;
    if (node->is("tensor.extract"))
      type = getElementTypeOrSelf(state.operands[0].getType());
    state.addTypes(type);
    if (node->attributes)
      state.addAttributes(node->attributes.getValue());
    Value result = b->create(state)->getResult(0);
    return node->is("tensor.extract") ? toScore(result) : result;
  };
  Value value = build();
  if (value)
    values[node] = value;
  return value;
}
