//===- StructuredEmitter.cpp - Structured ops on matrices ---------------------===//
#include "StructuredEmitter.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"

using namespace mlir;
using namespace saccade;

Value StructuredEmitter::scalar(double value) { return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value)); }

Value StructuredEmitter::asIndex(OpFoldResult value) { return getValueOrCreateConstantIndexOp(b, loc, value); }

Value StructuredEmitter::convert(Value value, Type to) {
  unsigned from = value.getType().getIntOrFloatBitWidth(), expected = to.getIntOrFloatBitWidth();
  if (from < expected)
    return arith::ExtFOp::create(b, loc, to, value);
  return from > expected ? arith::TruncFOp::create(b, loc, to, value).getResult() : value;
}

Value StructuredEmitter::temporary(ArrayRef<Extent> shape, Type element) {
  SmallVector<int64_t> bounds;
  SmallVector<OpFoldResult> sizes;
  for (const Extent &extent : shape)
    bounds.push_back(extent.bound), sizes.push_back(extent.size);
  Value whole = tensor::EmptyOp::create(b, loc, bounds, element ? element : type);
  if (llvm::all_of(shape, [](const Extent &extent) { return getConstantIntValue(extent.size) == extent.bound; }))
    return whole;
  SmallVector<OpFoldResult> zeros(shape.size(), b.getIndexAttr(0)), ones(shape.size(), b.getIndexAttr(1));
  return tensor::ExtractSliceOp::create(b, loc, whole, zeros, sizes, ones);
}

Value StructuredEmitter::filled(Value tensor, double value) {
  Value element =
      arith::ConstantOp::create(b, loc, b.getFloatAttr(cast<FloatType>(getElementTypeOrSelf(tensor)), value));
  return linalg::FillOp::create(b, loc, element, tensor).getResult(0);
}

SmallVector<Value> StructuredEmitter::apply(unsigned loops, unsigned reductions, ArrayRef<IndexedOperand> inputs,
                                            ArrayRef<IndexedOperand> outputs, Element element) {
  SmallVector<Value> ins, outs;
  SmallVector<AffineMap> maps;
  auto take = [&](ArrayRef<IndexedOperand> walks, SmallVector<Value> &values) {
    for (const IndexedOperand &walk : walks) {
      values.push_back(walk.value);
      maps.push_back(AffineMap::getMultiDimMapWithTargets(loops, walk.loops, b.getContext()));
    }
  };
  take(inputs, ins);
  take(outputs, outs);
  SmallVector<utils::IteratorType> iterators(loops - reductions, utils::IteratorType::parallel);
  iterators.append(reductions, utils::IteratorType::reduction);
  auto op = linalg::GenericOp::create(b, loc, TypeRange(ValueRange(outs)), ins, outs, maps, iterators,
                                      [&](OpBuilder &nested, Location, ValueRange args) {
                                        OpBuilder::InsertionGuard guard(b);
                                        b.setInsertionPoint(nested.getInsertionBlock(), nested.getInsertionPoint());
                                        SmallVector<Value> results = element(args);
                                        linalg::YieldOp::create(b, loc, results);
                                      });
  return SmallVector<Value>(op.getResults());
}

Value StructuredEmitter::sum(unsigned loops, unsigned reductions, const IndexedOperand &x, const IndexedOperand &sums) {
  return apply(loops, reductions, {x}, {sums}, [&](ValueRange args) -> SmallVector<Value> {
    return {arith::AddFOp::create(b, loc, args[1], args[0])};
  })[0];
}

Value StructuredEmitter::round(Value tensor, RankedTensorType to) {
  Value rounded = tensor;
  if (Type element = to.getElementType(); element != getElementTypeOrSelf(tensor)) {
    SmallVector<unsigned> loops = llvm::to_vector(llvm::seq<unsigned>(to.getRank()));
    Value empty = tensor::EmptyOp::create(b, loc, tensor::getMixedSizes(b, loc, tensor), element);
    rounded = apply(to.getRank(), 0, {{tensor, loops}}, {{empty, loops}},
                    [&](ValueRange args) -> SmallVector<Value> { return {convert(args[0], element)}; })[0];
  }
  return rounded.getType() == to ? rounded : tensor::CastOp::create(b, loc, to, rounded);
}

Value StructuredEmitter::matmul(const IndexedOperand &lhs, const IndexedOperand &rhs, const IndexedOperand &sums,
                                attn::ScheduleAttr block) {
  Value result = apply(3, 1, {lhs, rhs}, {sums}, [&](ValueRange args) -> SmallVector<Value> {
    Type element = args[2].getType();
    Value product = arith::MulFOp::create(b, loc, convert(args[0], element), convert(args[1], element));
    return {arith::AddFOp::create(b, loc, args[2], product)};
  })[0];
  result.getDefiningOp()->setAttr("schedule", block);
  result.getDefiningOp()->setAttr(tileMatmulAttr, b.getUnitAttr());
  return result;
}

Value StructuredEmitter::slice(Value tensor, ArrayRef<OpFoldResult> offsets, ArrayRef<OpFoldResult> sizes,
                               ArrayRef<bool> isKept) {
  SmallVector<int64_t> shape;
  for (auto [extent, kept] : llvm::zip_equal(sizes, isKept))
    if (kept)
      shape.push_back(getConstantIntValue(extent).value_or(ShapedType::kDynamic));
  SmallVector<OpFoldResult> ones(sizes.size(), b.getIndexAttr(1));
  auto type = RankedTensorType::get(shape, getElementTypeOrSelf(tensor));
  return tensor::ExtractSliceOp::create(b, loc, type, tensor, offsets, sizes, ones);
}

Value StructuredEmitter::slice(Value tensor, const Place &place) {
  return slice(tensor, place.offsets, place.sizes, SmallVector<bool>(place.sizes.size(), true));
}
