//===- TensorEmitter.cpp - Structured ops of gradients ------------------------===//
#include "TensorEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace saccade::attn;

RankedTensorType saccade::attn::getGradientType(Value value) {
  auto tensor = dyn_cast<RankedTensorType>(value.getType());
  return tensor ? tensor : RankedTensorType::get({}, value.getType());
}

static Value emptyOf(TensorEmitter &e, ArrayRef<OpFoldResult> extents, RankedTensorType type) {
  Value empty = tensor::EmptyOp::create(e.b, e.loc, extents, type.getElementType());
  return empty.getType() == type ? empty : tensor::CastOp::create(e.b, e.loc, type, empty).getResult();
}

static SmallVector<OpFoldResult> extentsOf(TensorEmitter &e, Value value) {
  return isa<RankedTensorType>(value.getType()) ? tensor::getMixedSizes(e.b, e.loc, value)
                                                : SmallVector<OpFoldResult>();
}

Value TensorEmitter::empty(Value like, Type element) {
  return emptyOf(*this, extentsOf(*this, like), getGradientType(like).clone(element));
}

Value TensorEmitter::filled(ArrayRef<OpFoldResult> extents, RankedTensorType type, double element) {
  Value constant = arith::ConstantOp::create(b, loc, b.getFloatAttr(type.getElementType(), element));
  return linalg::FillOp::create(b, loc, constant, emptyOf(*this, extents, type)).getResult(0);
}

Value TensorEmitter::zeros(Value like, Type element) {
  return zeros(extentsOf(*this, like), getGradientType(like).clone(element));
}

Value TensorEmitter::generic(ArrayRef<Indexed> inputs, Indexed output, Body body) {
  SmallVector<Value> values;
  SmallVector<AffineMap> maps;
  for (const Indexed &input : inputs) {
    values.push_back(input.value);
    maps.push_back(input.map);
  }
  maps.push_back(output.map);
  SmallVector<utils::IteratorType> iterators;
  for (unsigned loop = 0; loop < output.map.getNumDims(); ++loop)
    iterators.push_back(output.map.isFunctionOfDim(loop) ? utils::IteratorType::parallel
                                                         : utils::IteratorType::reduction);
  return linalg::GenericOp::create(b, loc, output.value.getType(), values, output.value, maps, iterators,
                                   [&](OpBuilder &nested, Location at, ValueRange elements) {
                                     linalg::YieldOp::create(nested, at, body(nested, elements));
                                   })
      .getResult(0);
}

Value TensorEmitter::accumulate(ArrayRef<Indexed> inputs, Value like, AffineMap map, Type element, Body body) {
  RankedTensorType type = getGradientType(like).clone(element);
  SmallVector<AffineExpr> kept;
  SmallVector<int64_t> shape, unitShape(type.getShape());
  SmallVector<OpFoldResult> extents;
  // Dimensions of extent 1 belong to the kept dimension before them, the first ones to that after them.
  SmallVector<ReassociationIndices> groups;
  for (auto [i, index] : llvm::enumerate(map.getResults())) {
    if (isa<AffineConstantExpr>(index)) {
      unitShape[i] = 1;
    } else {
      kept.push_back(index);
      shape.push_back(type.getDimSize(i));
      extents.push_back(tensor::getMixedSize(b, loc, like, i));
    }
    if (groups.empty() || (!isa<AffineConstantExpr>(index) && kept.size() > 1))
      groups.emplace_back();
    groups.back().push_back(i);
  }
  if (kept.size() == map.getNumResults())
    return generic(inputs, {zeros(like, element), map}, body);
  AffineMap inner = AffineMap::get(map.getNumDims(), 0, kept, b.getContext());
  Value sums = generic(inputs, {zeros(extents, RankedTensorType::get(shape, element)), inner}, body);
  if (kept.empty())
    groups.clear();
  SmallVector<OpFoldResult> all;
  for (auto [i, index] : llvm::enumerate(map.getResults()))
    all.push_back(isa<AffineConstantExpr>(index) ? OpFoldResult(b.getIndexAttr(1))
                                                 : tensor::getMixedSize(b, loc, like, i));
  return tensor::ExpandShapeOp::create(b, loc, RankedTensorType::get(unitShape, element), sums, groups, all);
}

Value TensorEmitter::elementwise(ValueRange inputs, Type element, Body body) {
  auto type = cast<RankedTensorType>(inputs.front().getType());
  AffineMap identity = b.getMultiDimIdentityMap(type.getRank());
  return generic(llvm::map_to_vector(inputs, [&](Value input) { return Indexed{input, identity}; }),
                 {empty(inputs.front(), element), identity}, body);
}

Value TensorEmitter::sum(ValueRange tensors) {
  if (tensors.size() == 1)
    return tensors.front();
  return elementwise(tensors, getElementTypeOrSelf(tensors.front()), [&](OpBuilder &nested, ValueRange elements) {
    Value total = elements.front();
    for (Value element : elements.drop_front().drop_back())
      total = arith::AddFOp::create(nested, loc, total, element);
    return total;
  });
}

Value TensorEmitter::withElement(Value tensor, Type element) {
  if (getElementTypeOrSelf(tensor) == element)
    return tensor;
  return elementwise(tensor, element, [&](OpBuilder &nested, ValueRange elements) {
    return convertedScalar(nested, loc, elements.front(), element);
  });
}

Value TensorEmitter::converted(Value tensor, Value like) {
  RankedTensorType type = getGradientType(like);
  tensor = withElement(tensor, type.getElementType());
  return tensor.getType() == type ? tensor : Value(tensor::CastOp::create(b, loc, type, tensor));
}

Value TensorEmitter::convertedScalar(OpBuilder &b, Location loc, Value value, Type type) {
  if (value.getType() == type)
    return value;
  unsigned from = value.getType().getIntOrFloatBitWidth(), to = type.getIntOrFloatBitWidth();
  if (to > from)
    return arith::ExtFOp::create(b, loc, type, value);
  // f16 and bf16 have the same width, and derivatives have neither.
  assert(to < from && "no conversion between 16-bit types");
  return arith::TruncFOp::create(b, loc, type, value);
}
