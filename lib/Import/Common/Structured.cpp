//===- Structured.cpp - Elementwise ops, broadcasting and gathers ---------===//
#include "saccade/Import/Common/Structured.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Import/Common/Elements.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::frontend;

/// The first (argument, dimension) with the same symbolic dimension name (attn.dim_names), so that dimensions of one
/// name share one SSA value.
static std::pair<Value, int64_t> firstOfName(BlockArgument argument, int64_t dim) {
  auto function = dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp());
  auto nameOf = [&](unsigned i, int64_t d) {
    auto names = function.getArgAttrOfType<ArrayAttr>(i, attn::dimNamesAttr);
    auto name = names && d < static_cast<int64_t>(names.size()) ? dyn_cast<StringAttr>(names[d]) : StringAttr();
    return name && !name.empty() ? name : StringAttr();
  };
  if (!function || !argument.getOwner()->isEntryBlock())
    return {argument, dim};
  StringAttr name = nameOf(argument.getArgNumber(), dim);
  for (BlockArgument each : argument.getOwner()->getArguments())
    if (auto type = dyn_cast<RankedTensorType>(each.getType()); name && type)
      for (int64_t d = 0; d < type.getRank(); ++d)
        if (type.isDynamicDim(d) && nameOf(each.getArgNumber(), d) == name)
          return {each, d};
  return {argument, dim};
}

/// The extent of a dimension: taken from the op that produces the tensor if possible, so that equal extents are one SSA
/// value; otherwise from a tensor.dim, which is reused.
static OpFoldResult extentOf(ImplicitLocOpBuilder &b, Value tensor, int64_t dim) {
  auto type = cast<RankedTensorType>(tensor.getType());
  if (!type.isDynamicDim(dim))
    return b.getIndexAttr(type.getDimSize(dim));
  if (OpFoldResult declared = attachedExtent(b, tensor, dim))
    return declared;
  Operation *op = tensor.getDefiningOp();
  if (auto structured = dyn_cast_or_null<DestinationStyleOpInterface>(op))
    return extentOf(b, structured.getTiedOpOperand(cast<OpResult>(tensor))->get(), dim);
  if (auto empty = dyn_cast_or_null<tensor::EmptyOp>(op))
    return empty.getMixedSizes()[dim];
  if (auto expand = dyn_cast_or_null<tensor::ExpandShapeOp>(op))
    return expand.getMixedOutputShape()[dim];
  if (auto cast = dyn_cast_or_null<tensor::CastOp>(op); cast && isa<RankedTensorType>(cast.getSource().getType()))
    return extentOf(b, cast.getSource(), dim);
  if (auto parts = dyn_cast_or_null<UnrealizedConversionCastOp>(op); parts && parts.getNumOperands() > 0)
    return extentOf(b, parts.getOperand(0), dim); // the parts of a complex tensor
  if (auto slice = dyn_cast_or_null<tensor::ExtractSliceOp>(op);
      slice && slice.getSourceType().getRank() == type.getRank())
    return slice.getMixedSizes()[dim];
  if (auto concat = dyn_cast_or_null<tensor::ConcatOp>(op)) {
    OpFoldResult sum = extentOf(b, concat.getInputs().front(), dim);
    for (Value each :
         concat.getInputs().drop_front(static_cast<int64_t>(concat.getDim()) == dim ? 1 : concat.getInputs().size()))
      sum = addExtents(b, sum, extentOf(b, each, dim));
    return sum;
  }
  if (auto collapse = dyn_cast_or_null<tensor::CollapseShapeOp>(op))
    return multiplyExtents(b, llvm::map_to_vector(collapse.getReassociationIndices()[dim],
                                                  [&](int64_t each) { return extentOf(b, collapse.getSrc(), each); }));
  if (auto argument = dyn_cast<BlockArgument>(tensor))
    std::tie(tensor, dim) = firstOfName(argument, dim);
  // Reuse a dominating tensor.dim.
  Block *block = b.getInsertionBlock();
  for (Operation *user : tensor.getUsers()) {
    auto known = dyn_cast<tensor::DimOp>(user);
    if (!known || known->getBlock() != block || known.getConstantIndex() != dim)
      continue;
    if (b.getInsertionPoint() == block->end() || known->isBeforeInBlock(&*b.getInsertionPoint()))
      return known.getResult();
  }
  return tensor::DimOp::create(b, tensor, dim).getResult();
}

Extents frontend::extentsOf(ImplicitLocOpBuilder &b, Value tensor) {
  int64_t rank = cast<RankedTensorType>(tensor.getType()).getRank();
  return llvm::map_to_vector(llvm::seq<int64_t>(0, rank), [&](int64_t dim) { return extentOf(b, tensor, dim); });
}

RankedTensorType frontend::typeOf(ArrayRef<OpFoldResult> extents, Type element) {
  SmallVector<int64_t> shape;
  SmallVector<Value> dynamic;
  dispatchIndexOpFoldResults(extents, dynamic, shape);
  return RankedTensorType::get(shape, element);
}

static Value makeEmpty(ImplicitLocOpBuilder &b, ArrayRef<OpFoldResult> extents, Type element) {
  return tensor::EmptyOp::create(b, extents, element);
}

Value frontend::splat(ImplicitLocOpBuilder &b, ArrayRef<OpFoldResult> extents, Value value) {
  Value empty = makeEmpty(b, extents, value.getType());
  return linalg::FillOp::create(b, value, empty).getResult(0);
}

Value frontend::splat(ImplicitLocOpBuilder &b, ArrayRef<OpFoldResult> extents, Type element, double value) {
  return splat(b, extents, makeNumber(b, b.getLoc(), element, value));
}

//===- Broadcasting -------------------------------------------------------===//

static bool isOne(OpFoldResult extent) { return isConstantIntValue(extent, 1); }

FailureOr<Extents> frontend::broadcastExtents(ImplicitLocOpBuilder &b, ArrayRef<Extents> shapes) {
  size_t rank = 0;
  for (const Extents &shape : shapes)
    rank = std::max(rank, shape.size());
  Extents result(rank, b.getIndexAttr(1));
  for (const Extents &shape : shapes)
    for (auto [i, extent] : llvm::enumerate(shape)) {
      OpFoldResult &expected = result[rank - shape.size() + i];
      if (isOne(extent))
        continue;
      std::optional<int64_t> one = getConstantIntValue(expected), other = getConstantIntValue(extent);
      if (one && other && *one != 1 && *one != *other)
        return failure();
      // Prefer static extents.
      if (isOne(expected) || (!one && other))
        expected = extent;
    }
  return result;
}

/// The map from the loops over `extents` to the dimensions of an input that broadcasts to them.
static AffineMap broadcastMap(OpBuilder &b, RankedTensorType input, ArrayRef<OpFoldResult> extents) {
  SmallVector<AffineExpr> expressions;
  int64_t skipped = extents.size() - input.getRank();
  for (int64_t i = 0; i < input.getRank(); ++i) {
    bool broadcasts = input.getDimSize(i) == 1 && !isOne(extents[skipped + i]);
    expressions.push_back(broadcasts ? b.getAffineConstantExpr(0) : b.getAffineDimExpr(skipped + i));
  }
  return AffineMap::get(extents.size(), 0, expressions, b.getContext());
}

/// Evaluates the result element by element if all elements of the inputs are known; otherwise returns null.
static Value evaluateElements(ImplicitLocOpBuilder &b, ArrayRef<OpFoldResult> extents, ValueRange inputs, Type element,
                              bool withPositions, ScalarBuilder body) {
  RankedTensorType type = typeOf(extents, element);
  if (!type.hasStaticShape() || type.getNumElements() > maxFoldedElements)
    return nullptr;
  SmallVector<SmallVector<OpFoldResult>> known;
  for (Value input : inputs) {
    std::optional<SmallVector<OpFoldResult>> elements = elementsOf(input);
    if (!elements)
      return nullptr;
    known.push_back(std::move(*elements));
  }
  SmallVector<OpFoldResult> results;
  SmallVector<int64_t> strides = computeStrides(type.getShape());
  for (int64_t i = 0; i < type.getNumElements(); ++i) {
    SmallVector<int64_t> position = delinearize(i, strides);
    SmallVector<Value> arguments;
    if (withPositions)
      for (int64_t each : position)
        arguments.push_back(arith::ConstantIndexOp::create(b, each));
    for (auto [input, elements] : llvm::zip(inputs, known)) {
      auto inputType = cast<RankedTensorType>(input.getType());
      SmallVector<int64_t> at = broadcastMap(b, inputType, extents).compose(position);
      arguments.push_back(toValue(b, elements[linearize(at, computeStrides(inputType.getShape()))]));
    }
    results.push_back(getAsOpFoldResult(body(b, b.getLoc(), arguments)));
  }
  return fromElements(b, type, results);
}

static Value loopOver(ImplicitLocOpBuilder &b, ArrayRef<OpFoldResult> extents, ValueRange inputs, Type element,
                      bool withPositions, ScalarBuilder body) {
  if (Value known = evaluateElements(b, extents, inputs, element, withPositions, body))
    return known;
  int64_t rank = extents.size();
  SmallVector<AffineMap> maps;
  for (Value input : inputs)
    maps.push_back(broadcastMap(b, cast<RankedTensorType>(input.getType()), extents));
  maps.push_back(b.getMultiDimIdentityMap(rank));
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  Value empty = makeEmpty(b, extents, element);
  return linalg::GenericOp::create(b, TypeRange{empty.getType()}, inputs, ValueRange{empty}, maps, iterators,
                                   [&](OpBuilder &nested, Location loc, ValueRange arguments) {
                                     SmallVector<Value> all;
                                     for (int64_t i = 0; withPositions && i < rank; ++i)
                                       all.push_back(linalg::IndexOp::create(nested, loc, i));
                                     llvm::append_range(all, arguments.drop_back());
                                     linalg::YieldOp::create(nested, loc, body(nested, loc, all));
                                   })
      .getResult(0);
}

Value frontend::elementwise(ImplicitLocOpBuilder &b, ValueRange inputs, Type element, ScalarBuilder body) {
  SmallVector<Extents> shapes;
  for (Value input : inputs)
    shapes.push_back(extentsOf(b, input));
  FailureOr<Extents> extents = broadcastExtents(b, shapes);
  assert(succeeded(extents) && "shapes must have been checked");
  return loopOver(b, *extents, inputs, element, /*withPositions=*/false, body);
}

Value frontend::generate(ImplicitLocOpBuilder &b, ArrayRef<OpFoldResult> extents, ValueRange inputs, Type element,
                         ScalarBuilder body) {
  return loopOver(b, extents, inputs, element, /*withPositions=*/true, body);
}

Value frontend::castElements(ImplicitLocOpBuilder &b, Value tensor, Type element) {
  if (getElementTypeOrSelf(tensor.getType()) == element)
    return tensor;
  return elementwise(b, tensor, element, [&](OpBuilder &nested, Location loc, ValueRange inputs) {
    return convert(nested, loc, inputs[0], element);
  });
}

Value frontend::normalizeIndex(OpBuilder &b, Location loc, Value index, Value extent) {
  index = convert(b, loc, index, b.getIndexType());
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  Value isNegative = compare(b, loc, arith::CmpIPredicate::slt, index, zero);
  return select(b, loc, isNegative, add(b, loc, index, extent), index);
}

Value frontend::clampIndexToExtent(OpBuilder &b, Location loc, Value index, Value extent) {
  Value zero = arith::ConstantIndexOp::create(b, loc, 0), one = arith::ConstantIndexOp::create(b, loc, 1);
  index = normalizeIndex(b, loc, index, extent);
  return maximum(b, loc, zero, minimum(b, loc, sub(b, loc, extent, one), index));
}

Value frontend::gather(ImplicitLocOpBuilder &b, Value table, Value indices, int64_t axis) {
  auto type = cast<RankedTensorType>(table.getType());
  Extents extents = extentsOf(b, table), from = extentsOf(b, indices);
  int64_t depth = from.size();
  Value size = getValueOrCreateConstantIndexOp(b, b.getLoc(), extents[axis]);
  Extents result(extents);
  result.erase(result.begin() + axis);
  result.insert(result.begin() + axis, from.begin(), from.end());

  // The indices are an input that is constant along the other dimensions of the table.
  SmallVector<AffineExpr> dims;
  for (int64_t i = 0; i < depth; ++i)
    dims.push_back(b.getAffineDimExpr(axis + i));
  AffineMap maps[] = {AffineMap::get(result.size(), 0, dims, b.getContext()), b.getMultiDimIdentityMap(result.size())};
  SmallVector<utils::IteratorType> iterators(result.size(), utils::IteratorType::parallel);
  Value empty = makeEmpty(b, result, type.getElementType());
  auto body = [&](OpBuilder &nested, Location loc, ValueRange arguments) {
    Value index = clampIndexToExtent(nested, loc, arguments[0], size);
    SmallVector<Value> position;
    for (int64_t i = 0; i < type.getRank(); ++i) {
      if (i == axis)
        position.push_back(index);
      else
        position.push_back(linalg::IndexOp::create(nested, loc, i < axis ? i : i + depth - 1));
    }
    Value element = tensor::ExtractOp::create(nested, loc, table, position);
    linalg::YieldOp::create(nested, loc, element);
  };
  return linalg::GenericOp::create(b, TypeRange{empty.getType()}, ValueRange{indices}, ValueRange{empty}, maps,
                                   iterators, body)
      .getResult(0);
}
