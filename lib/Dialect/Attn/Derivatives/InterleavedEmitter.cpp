//===- InterleavedEmitter.cpp - Two positions for each one --------------------===//
#include "InterleavedEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace saccade::attn;

Value InterleavedEmitter::interleaved(ArrayRef<Value> parts, ArrayRef<Dim> dims, bool isInterleaved) {
  Value like = *llvm::find_if(parts, [](Value part) { return bool(part); });
  unsigned sequence = llvm::find(dims, Dim::Seq) - dims.begin(), depth = llvm::find(dims, Dim::Depth) - dims.begin();
  bool isHalved = parts.size() == (isInterleaved ? 4 : 2);
  SmallVector<int64_t> shape(cast<RankedTensorType>(like.getType()).getShape());
  SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, like), part = extents;
  int64_t half = isHalved ? shape[depth] : 0;
  if (isHalved)
    extents[depth] = b.getIndexAttr(shape[depth] *= 2);
  if (isInterleaved) {
    shape.insert(shape.begin() + sequence + 1, 2);
    extents.insert(extents.begin() + sequence + 1, b.getIndexAttr(2));
    part.insert(part.begin() + sequence + 1, b.getIndexAttr(1));
  }
  Value into = e.zeros(extents, RankedTensorType::get(shape, type));
  bool isEmpty = llvm::is_contained(shape, 0); // no offset is within a statically empty tensor
  for (auto [i, each] : llvm::enumerate(parts)) {
    if (!each || isEmpty)
      continue;
    SmallVector<OpFoldResult> offsets(shape.size(), b.getIndexAttr(0)), ones(shape.size(), b.getIndexAttr(1));
    if (isInterleaved)
      offsets[sequence + 1] = b.getIndexAttr(isHalved ? i / 2 : i);
    if (isHalved && i % 2)
      offsets[depth + (isInterleaved && sequence < depth ? 1 : 0)] = b.getIndexAttr(half);
    into = tensor::InsertSliceOp::create(b, loc, each, into, offsets, part, ones);
  }
  return isInterleaved ? tensor::CollapseShapeOp::create(b, loc, into, dividedAt(dims.size(), sequence)).getResult()
                       : into;
}

Value InterleavedEmitter::oddPositions(Named x, SmallVector<OpFoldResult> extents) {
  unsigned sequence = x.at(Dim::Seq), depth = x.at(Dim::Depth);
  SmallVector<int64_t> shape = x.shape();
  extents[depth] = b.getIndexAttr(shape[depth]);
  shape[sequence] = ShapedType::isDynamic(shape[sequence]) ? shape[sequence] : shape[sequence] / 2;
  auto reduced = RankedTensorType::get(shape, type);
  if (llvm::is_contained(shape, 0))
    return e.zeros(extents, reduced);
  shape.insert(shape.begin() + sequence + 1, 2);
  extents.insert(extents.begin() + sequence + 1, b.getIndexAttr(2));
  Value pairs = tensor::ExpandShapeOp::create(b, loc, RankedTensorType::get(shape, type), x.value,
                                              dividedAt(x.dims.size(), sequence), extents);
  SmallVector<OpFoldResult> offsets(shape.size(), b.getIndexAttr(0)), ones(shape.size(), b.getIndexAttr(1));
  offsets[sequence + 1] = b.getIndexAttr(1);
  extents[sequence + 1] = b.getIndexAttr(1);
  return tensor::ExtractSliceOp::create(b, loc, reduced, pairs, offsets, extents, ones);
}

Value InterleavedEmitter::doubled(Value lengths) {
  if (!lengths)
    return {};
  Type element = getElementTypeOrSelf(lengths);
  return e.elementwise(lengths, element, [&](OpBuilder &nested, ValueRange elements) -> Value {
    // Longer ones mean all positions.
    int64_t most = (int64_t(1) << (element.getIntOrFloatBitWidth() - 2)) - 1;
    Value bound = arith::ConstantOp::create(nested, loc, nested.getIntegerAttr(element, most));
    Value bounded = arith::MinSIOp::create(nested, loc, elements[0], bound);
    return arith::AddIOp::create(nested, loc, bounded, bounded);
  });
}

Value InterleavedEmitter::repeatHeads(Value x, unsigned head, OpFoldResult heads) {
  auto from = cast<RankedTensorType>(x.getType());
  std::optional<int64_t> count = getConstantIntValue(heads);
  if (count && *count == from.getDimSize(head))
    return x;
  SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, x);
  OpFoldResult members = membersOf(heads, extents[head]);
  SmallVector<int64_t> shape(from.getShape());
  shape.insert(shape.begin() + head + 1, getConstantIntValue(members).value_or(ShapedType::kDynamic));
  extents.insert(extents.begin() + head + 1, members);
  AffineMap loops = b.getMultiDimIdentityMap(shape.size());
  auto into = cast<RankedTensorType>(from.clone(shape));
  Value repeated = e.generic({{x, loops.dropResult(head + 1)}}, {e.filled(extents, into, 0), loops},
                             [](OpBuilder &, ValueRange elements) { return elements[0]; });
  Value merged = tensor::CollapseShapeOp::create(b, loc, repeated, dividedAt(from.getRank(), head));
  SmallVector<int64_t> result(from.getShape());
  result[head] = count.value_or(ShapedType::kDynamic);
  auto type = cast<RankedTensorType>(from.clone(result));
  return merged.getType() == type ? merged : tensor::CastOp::create(b, loc, type, merged).getResult();
}
