//===- Elements.cpp - Small tensors with known elements -------------------===//
#include "saccade/Import/Common/Elements.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace saccade;

std::optional<SmallVector<OpFoldResult>> frontend::elementsOf(Value tensor) {
  auto type = dyn_cast<RankedTensorType>(tensor.getType());
  if (!type || !type.hasStaticShape() || type.getNumElements() > maxFoldedElements)
    return std::nullopt;
  DenseElementsAttr constant;
  SmallVector<OpFoldResult> elements;
  if (matchPattern(tensor, m_Constant(&constant))) {
    for (Attribute value : constant.getValues<Attribute>())
      elements.push_back(value);
    return elements;
  }
  if (auto made = tensor.getDefiningOp<tensor::FromElementsOp>()) {
    for (Value value : made.getElements())
      elements.push_back(getAsOpFoldResult(value));
    return elements;
  }
  if (type.getNumElements() == 0)
    return elements;
  return std::nullopt;
}

Value frontend::toValue(ImplicitLocOpBuilder &b, OpFoldResult element) {
  if (auto value = dyn_cast<Value>(element))
    return value;
  return arith::ConstantOp::create(b, cast<TypedAttr>(cast<Attribute>(element)));
}

Value frontend::fromElements(ImplicitLocOpBuilder &b, RankedTensorType type, ArrayRef<OpFoldResult> elements) {
  if (llvm::all_of(elements, [](OpFoldResult each) { return isa<Attribute>(each); })) {
    auto values = llvm::map_to_vector(elements, [](OpFoldResult each) { return cast<Attribute>(each); });
    return arith::ConstantOp::create(b, DenseElementsAttr::get(type, values));
  }
  auto values = llvm::map_to_vector(elements, [&](OpFoldResult each) { return toValue(b, each); });
  return tensor::FromElementsOp::create(b, type, values);
}

SmallVector<OpFoldResult> frontend::toExtents(ImplicitLocOpBuilder &b, ArrayRef<OpFoldResult> elements) {
  return llvm::map_to_vector(elements, [&](OpFoldResult each) -> OpFoldResult {
    if (auto attribute = dyn_cast<Attribute>(each))
      return b.getIndexAttr(cast<IntegerAttr>(attribute).getValue().getSExtValue());
    Value value = cast<Value>(each);
    if (value.getType().isIndex())
      return value;
    // Strip index casts around extents, so that equal extents are one SSA value.
    if (auto cast = value.getDefiningOp<arith::IndexCastOp>(); cast && cast.getIn().getType().isIndex())
      return cast.getIn();
    return getAsOpFoldResult(b.createOrFold<arith::IndexCastOp>(b.getIndexType(), value));
  });
}

Value frontend::fromExtents(ImplicitLocOpBuilder &b, ArrayRef<OpFoldResult> extents, IntegerType element) {
  auto elements = llvm::map_to_vector(extents, [&](OpFoldResult each) -> OpFoldResult {
    if (auto attribute = dyn_cast<Attribute>(each))
      return b.getIntegerAttr(element, cast<IntegerAttr>(attribute).getInt());
    return getAsOpFoldResult(b.createOrFold<arith::IndexCastOp>(element, cast<Value>(each)));
  });
  return fromElements(b, RankedTensorType::get(extents.size(), element), elements);
}

std::optional<SmallVector<int64_t>> frontend::constantIntegers(Value tensor) {
  DenseIntElementsAttr constant;
  if (!tensor || !matchPattern(tensor, m_Constant(&constant)))
    return std::nullopt;
  return llvm::map_to_vector(constant.getValues<APInt>(), [](const APInt &value) { return value.getSExtValue(); });
}
