//===- ElementReader.cpp - One tensor element as scalar code --------------===//
#include "saccade/Import/Common/ElementReader.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "saccade/Import/Common/Scalars.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::frontend;

Value Captures::inside(Block &block, unsigned numOwnArgs, Value outer) {
  if (!llvm::is_contained(values, outer))
    values.push_back(outer);
  complete(block, numOwnArgs);
  return block.getArgument(numOwnArgs + std::distance(values.begin(), llvm::find(values, outer)));
}

void Captures::complete(Block &block, unsigned numOwnArgs) {
  for (size_t i = block.getNumArguments() - numOwnArgs; i < values.size(); ++i)
    block.addArgument(values[i].getType(), values[i].getLoc());
}

ElementReader::ElementReader(Block &block, unsigned numOwnArgs, Captures &captures, Value whole, ValueRange position,
                             Value element)
    : block(block), numOwnArgs(numOwnArgs), captures(captures), whole(whole), element(element), wholePosition(position),
      b(whole.getContext()) {
  b.setInsertionPointToEnd(&block);
}

Value ElementReader::number(int64_t value) { return arith::ConstantIndexOp::create(b, whole.getLoc(), value); }

bool ElementReader::dependsOnWhole(Value value) {
  if (value == whole)
    return true;
  Operation *op = value.getDefiningOp();
  // Extents do not depend on the elements.
  if (!op || isa<tensor::DimOp, tensor::EmptyOp>(op))
    return false;
  if (auto found = depends.find(value); found != depends.end())
    return found->second;
  bool result = llvm::any_of(op->getOperands(), [&](Value operand) { return dependsOnWhole(operand); });
  op->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      if (!result && operand.getParentRegion()->isProperAncestor(inner->getParentRegion()) && inner != op)
        result = dependsOnWhole(operand);
  });
  depends[value] = result;
  return result;
}

Value ElementReader::scalar(Value outer) {
  Attribute constant;
  if (matchPattern(outer, m_Constant(&constant)))
    return arith::ConstantOp::create(b, outer.getLoc(), cast<TypedAttr>(constant));
  return dependsOnWhole(outer) ? Value() : captures.inside(block, numOwnArgs, outer);
}

Value ElementReader::readCaptured(Value tensor, ValueRange position) {
  if (dependsOnWhole(tensor))
    return nullptr;
  return tensor::ExtractOp::create(b, tensor.getLoc(), captures.inside(block, numOwnArgs, tensor), position);
}

Value ElementReader::read(Value tensor, ValueRange position) {
  if (tensor == whole)
    return llvm::equal(position, wholePosition) ? element : Value();
  for (const auto &[at, value] : known[tensor])
    if (llvm::equal(position, at))
      return value;
  Operation *op = tensor.getDefiningOp();
  Value result = op ? readOp(op, tensor, position) : readCaptured(tensor, position);
  known[tensor].emplace_back(SmallVector<Value>(position), result);
  return result;
}

/// Clones the body of an elementwise op for one element.
Value ElementReader::readBody(linalg::GenericOp op, ValueRange position) {
  IRMapping mapping;
  for (OpOperand *input : op.getDpsInputOperands()) {
    SmallVector<Value> at;
    for (AffineExpr each : op.getMatchingIndexingMap(input).getResults()) {
      if (auto dim = dyn_cast<AffineDimExpr>(each))
        at.push_back(position[dim.getPosition()]);
      else if (auto constant = dyn_cast<AffineConstantExpr>(each))
        at.push_back(number(constant.getValue()));
      else
        return nullptr;
    }
    Value value = isa<TensorType>(input->get().getType()) ? read(input->get(), at) : scalar(input->get());
    if (!value)
      return nullptr;
    mapping.map(op.getMatchingBlockArgument(input), value);
  }
  Block *body = op.getBody();
  for (Operation &each : body->without_terminator()) {
    if (auto index = dyn_cast<linalg::IndexOp>(each)) {
      mapping.map(index.getResult(), position[index.getDim()]);
      continue;
    }
    if (auto extract = dyn_cast<tensor::ExtractOp>(each); extract && !mapping.contains(extract.getTensor())) {
      SmallVector<Value> at;
      for (Value index : extract.getIndices()) {
        Value inner = mapping.contains(index) ? mapping.lookup(index) : scalar(index);
        if (!inner)
          return nullptr;
        at.push_back(inner);
      }
      Value value = read(extract.getTensor(), at);
      if (!value)
        return nullptr;
      mapping.map(extract.getResult(), value);
      continue;
    }
    for (Value operand : each.getOperands())
      if (!mapping.contains(operand)) {
        Value inner = scalar(operand);
        if (!inner)
          return nullptr;
        mapping.map(operand, inner);
      }
    b.clone(each, mapping);
  }
  Value yielded = body->getTerminator()->getOperand(0);
  return mapping.contains(yielded) ? mapping.lookup(yielded) : scalar(yielded);
}

/// Delinearizes the position `whole` in a group of dimensions into `at`. Returns false if this requires dynamic
/// extents.
static bool delinearizePosition(OpBuilder &b, Location loc, ArrayRef<int64_t> extents, Value whole,
                                SmallVectorImpl<Value> &at) {
  auto number = [&](int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); };
  if (llvm::count_if(extents, [](int64_t extent) { return extent != 1; }) <= 1) {
    bool placed = false;
    for (auto [i, extent] : llvm::enumerate(extents)) {
      bool isOwn = extent != 1 || (!placed && i + 1 == extents.size());
      at.push_back(isOwn && !placed ? whole : Value(number(0)));
      placed |= isOwn;
    }
    return true;
  }
  if (llvm::any_of(extents.drop_front(), ShapedType::isDynamic))
    return false;
  SmallVector<Value> reversed;
  for (size_t i = extents.size() - 1; i > 0; --i) {
    reversed.push_back(b.createOrFold<arith::RemUIOp>(loc, whole, number(extents[i])));
    whole = b.createOrFold<arith::DivUIOp>(loc, whole, number(extents[i]));
  }
  at.push_back(whole);
  llvm::append_range(at, llvm::reverse(reversed));
  return true;
}

/// Linearizes the position `at` in a group of dimensions; null if this requires dynamic extents.
static Value linearizePosition(OpBuilder &b, Location loc, ArrayRef<int64_t> extents, ArrayRef<Value> at) {
  Value whole;
  for (auto [extent, position] : llvm::zip(extents, at)) {
    if (extent == 1)
      continue;
    if (whole && ShapedType::isDynamic(extent))
      return nullptr;
    if (whole)
      whole = add(b, loc, mul(b, loc, whole, arith::ConstantIndexOp::create(b, loc, extent)), position);
    else
      whole = position;
  }
  return whole ? whole : arith::ConstantIndexOp::create(b, loc, 0);
}

Value ElementReader::readOp(Operation *op, Value tensor, ValueRange position) {
  Location loc = op->getLoc();
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case([&](linalg::GenericOp generic) {
        bool isElementwise = generic.getNumParallelLoops() == generic.getNumLoops() && generic->getNumResults() == 1 &&
                             generic.getIndexingMapsArray().back().isIdentity() &&
                             generic.getRegionOutputArgs().front().use_empty();
        return isElementwise ? readBody(generic, position) : readCaptured(tensor, position);
      })
      .Case([&](linalg::FillOp fill) { return scalar(fill.getInputs().front()); })
      .Case([&](tensor::CastOp cast) { return read(cast.getSource(), position); })
      .Case([&](tensor::FromElementsOp made) {
        return made.getElements().size() == 1 ? scalar(made.getElements().front()) : readCaptured(tensor, position);
      })
      .Case([&](arith::ConstantOp constant) -> Value {
        auto elements = dyn_cast<DenseElementsAttr>(constant.getValue());
        if (!elements || !elements.isSplat())
          return readCaptured(tensor, position);
        return arith::ConstantOp::create(b, loc, cast<TypedAttr>(elements.getSplatValue<Attribute>()));
      })
      .Case([&](linalg::TransposeOp transpose) {
        SmallVector<Value> at(position);
        for (auto [i, dim] : llvm::enumerate(transpose.getPermutation()))
          at[dim] = position[i];
        return read(transpose.getInput(), at);
      })
      .Case([&](tensor::ExtractSliceOp slice) -> Value {
        if (slice.getSourceType().getRank() != slice.getType().getRank())
          return readCaptured(tensor, position);
        SmallVector<Value> at;
        for (auto [i, offset, stride] : llvm::zip(position, slice.getMixedOffsets(), slice.getMixedStrides())) {
          auto inside = [&](OpFoldResult value) {
            std::optional<int64_t> constant = getConstantIntValue(value);
            return constant ? number(*constant) : scalar(cast<Value>(value));
          };
          Value first = inside(offset), step = inside(stride);
          if (!first || !step)
            return nullptr;
          at.push_back(add(b, loc, first, mul(b, loc, i, step)));
        }
        return read(slice.getSource(), at);
      })
      .Case([&](tensor::CollapseShapeOp collapse) -> Value {
        SmallVector<Value> at;
        ArrayRef<int64_t> shape = collapse.getSrcType().getShape();
        if (collapse.getReassociationIndices().empty())
          at.assign(shape.size(), number(0));
        for (auto [i, group] : llvm::enumerate(collapse.getReassociationIndices()))
          if (!delinearizePosition(b, loc, shape.slice(group.front(), group.size()), position[i], at))
            return readCaptured(tensor, position);
        return read(collapse.getSrc(), at);
      })
      .Case([&](tensor::ExpandShapeOp expand) -> Value {
        SmallVector<Value> at, given(position);
        ArrayRef<int64_t> shape = expand.getResultType().getShape();
        for (const ReassociationIndices &group : expand.getReassociationIndices()) {
          Value joined = linearizePosition(b, loc, shape.slice(group.front(), group.size()),
                                           ArrayRef(given).slice(group.front(), group.size()));
          if (!joined)
            return readCaptured(tensor, position);
          at.push_back(joined);
        }
        return read(expand.getSrc(), at);
      })
      .Default([&](Operation *) { return readCaptured(tensor, position); });
}
