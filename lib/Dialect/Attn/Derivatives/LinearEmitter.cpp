//===- LinearEmitter.cpp - Ops of derivatives of linear attention -------------===//
#include "LinearEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace saccade::attn;

std::optional<StringRef> LinearEmitter::findUnsupported() {
  bool hasHeads = op.getValueDims().position(Dim::Head).has_value();
  for (DimsAttr dims : {op.getQueryDims(), op.getKeyDims(), op.getEraseDims().value_or(op.getKeyDims())})
    if (dims.position(Dim::Head).has_value() != hasHeads)
      return "queries, keys and values of different dimensions";
  if (op.getNormalize() && ShapedType::isDynamic(getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth)))
    return "'normalize' with a dynamic head size";
  return std::nullopt;
}

Value LinearEmitter::wide(Value x) { return x ? e.withElement(x, type) : x; }

SmallVector<ReassociationIndices> LinearEmitter::dividedAt(unsigned rank, unsigned at) {
  SmallVector<ReassociationIndices> groups;
  for (unsigned i = 0, next = 0; i < rank; ++i) {
    groups.push_back({next++});
    if (i == at)
      groups.back().push_back(next++);
  }
  return groups;
}

OpFoldResult LinearEmitter::membersOf(OpFoldResult all, OpFoldResult own) {
  std::optional<int64_t> whole = getConstantIntValue(all), part = getConstantIntValue(own);
  if (whole && part)
    return b.getIndexAttr(*part == 0 ? 0 : *whole / *part);
  Value divisor = getValueOrCreateConstantIndexOp(b, loc, own);
  divisor = arith::MaxUIOp::create(b, loc, divisor, arith::ConstantIndexOp::create(b, loc, 1));
  return arith::DivUIOp::create(b, loc, getValueOrCreateConstantIndexOp(b, loc, all), divisor).getResult();
}

//===----------------------------------------------------------------------===//
// Features
//===----------------------------------------------------------------------===//

Value LinearEmitter::features(Value x, SmallVectorImpl<Value> &ops) {
  if (!hasFeatures())
    return op.getNormalize() ? wide(x) : x;
  DimsAttr dims = x == op.getQuery() ? op.getQueryDims() : op.getKeyDims();
  if (op.getCuSeqlens() || op.getKvLen()) {
    ops.push_back(withoutUnread(x, dims));
    x = ops.back();
  }
  if (op.getL2norm())
    ops.append(emitNorm(x, dims, op.getL2norm()->convertToDouble()));
  if (op.getFeature().empty())
    return ops.back();
  Region &region = op.getFeature();
  ops.push_back(e.elementwise(ops.empty() ? x : ops.back(), type, [&](OpBuilder &nested, ValueRange elements) {
    IRMapping mapping;
    mapping.map(region.getArgument(0), TensorEmitter::convertedScalar(nested, loc, elements[0], type));
    for (Operation &inner : region.front().without_terminator())
      nested.clone(inner, mapping);
    return mapping.lookupOrDefault(region.front().getTerminator()->getOperand(0));
  }));
  return ops.back();
}

Value LinearEmitter::withoutUnread(Value x, DimsAttr dims) {
  AffineMap all = b.getMultiDimIdentityMap(dims.size());
  SmallVector<TensorEmitter::Indexed> inputs = {{x, all}};
  Value end;
  if (Value lengths = op.getKvLen()) {
    inputs.push_back({lengths, AffineMap::get(dims.size(), 0, b.getAffineDimExpr(*dims.position(Dim::Batch)))});
  } else {
    Value starts = op.getCuSeqlens();
    Value count = tensor::DimOp::create(b, loc, starts, 0);
    Value last = arith::SubIOp::create(b, loc, count, arith::ConstantIndexOp::create(b, loc, 1));
    end = tensor::ExtractOp::create(b, loc, starts, last);
  }
  return e.generic(inputs, {e.empty(x, cast<RankedTensorType>(x.getType()).getElementType()), all},
                   [&](OpBuilder &nested, ValueRange elements) -> Value {
                     Value length = end ? end : elements[1];
                     length = arith::IndexCastOp::create(nested, loc, nested.getIndexType(), length);
                     Value position = linalg::IndexOp::create(nested, loc, *dims.position(Dim::Seq));
                     Value isRead = arith::CmpIOp::create(nested, loc, arith::CmpIPredicate::slt, position, length);
                     Value zero = arith::ConstantOp::create(nested, loc, nested.getZeroAttr(elements[0].getType()));
                     return arith::SelectOp::create(nested, loc, isRead, elements[0], zero);
                   });
}

SmallVector<Value> LinearEmitter::emitNorm(Value x, DimsAttr dims, double epsilon) {
  unsigned rank = dims.size(), depth = *dims.position(Dim::Depth);
  AffineMap all = b.getMultiDimIdentityMap(rank), rows = all.dropResult(depth);
  SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, x);
  extents.erase(extents.begin() + depth);
  SmallVector<int64_t> shape(cast<RankedTensorType>(x.getType()).getShape());
  shape.erase(shape.begin() + depth);
  auto widened = [&](OpBuilder &nested, Value element) {
    return TensorEmitter::convertedScalar(nested, loc, element, type);
  };
  Value squares = e.generic({{x, all}}, {e.zeros(extents, RankedTensorType::get(shape, type)), rows},
                            [&](OpBuilder &nested, ValueRange elements) -> Value {
                              Value element = widened(nested, elements[0]);
                              Value square = arith::MulFOp::create(nested, loc, element, element);
                              return arith::AddFOp::create(nested, loc, elements[1], square);
                            });
  Value normed = e.generic(
      {{x, all}, {squares, rows}}, {e.empty(x, type), all}, [&](OpBuilder &nested, ValueRange elements) -> Value {
        Value constant = arith::ConstantOp::create(nested, loc, nested.getFloatAttr(type, epsilon));
        Value sum = arith::AddFOp::create(nested, loc, elements[1], constant);
        Value root = math::SqrtOp::create(nested, loc, sum);
        return arith::DivFOp::create(nested, loc, widened(nested, elements[0]), root);
      });
  return {squares, normed};
}

//===----------------------------------------------------------------------===//
// Normalized outputs
//===----------------------------------------------------------------------===//

Value LinearEmitter::columns(Value x, unsigned dim, int64_t first, int64_t count) {
  auto from = cast<RankedTensorType>(x.getType());
  SmallVector<int64_t> shape(from.getShape());
  SmallVector<OpFoldResult> offsets(shape.size(), b.getIndexAttr(0)), ones(shape.size(), b.getIndexAttr(1)),
      extents = tensor::getMixedSizes(b, loc, x);
  shape[dim] = count;
  offsets[dim] = b.getIndexAttr(first);
  extents[dim] = b.getIndexAttr(count);
  if (llvm::is_contained(shape, 0)) // no offset is within a statically empty tensor
    return e.zeros(extents, from.clone(shape));
  return tensor::ExtractSliceOp::create(b, loc, x, offsets, extents, ones);
}

Value LinearEmitter::withColumn(Named x, Value column, double filling) {
  unsigned depth = x.at(Dim::Depth);
  SmallVector<int64_t> shape = x.shape();
  SmallVector<OpFoldResult> offsets(x.dims.size(), b.getIndexAttr(0)), ones(offsets.size(), b.getIndexAttr(1)),
      extents = sizes(x), whole = extents;
  int64_t count = shape[depth]++;
  whole[depth] = b.getIndexAttr(shape[depth]);
  Value into = e.filled(whole, RankedTensorType::get(shape, type), filling);
  if (llvm::is_contained(shape, 0)) // no offset is within a statically empty tensor
    return into;
  into = tensor::InsertSliceOp::create(b, loc, x.value, into, offsets, extents, ones);
  if (!column)
    return into;
  offsets[depth] = b.getIndexAttr(count);
  extents[depth] = b.getIndexAttr(1);
  return tensor::InsertSliceOp::create(b, loc, column, into, offsets, extents, ones);
}

Value LinearEmitter::divisors(Value query, Value key, Named value, Value decay, Value state) {
  DimsAttr dims = op.getOutputDims();
  unsigned depth = *dims.position(Dim::Depth), rank = dims.size();
  SmallVector<OpFoldResult> extents = sizes(value);
  extents[value.at(Dim::Depth)] = b.getIndexAttr(1);
  SmallVector<int64_t> shape = value.shape();
  SmallVector<int64_t> outputShape(cast<RankedTensorType>(op.getOutput().getType()).getShape());
  shape[value.at(Dim::Depth)] = outputShape[depth] = 1;
  Value ones = e.filled(extents, RankedTensorType::get(shape, type), 1), column;
  if (state) {
    auto stateType = cast<RankedTensorType>(state.getType());
    unsigned last = stateType.getRank() - 1;
    column = columns(state, last, stateType.getDimSize(last) - 1, 1);
  }
  Value found =
      LinearOp::create(b, loc, RankedTensorType::get(outputShape, type), Type(), query, key, ones, decay,
                       /*beta=*/Value(), /*erase=*/Value(), column, op.getCuSeqlens(), op.getKvLen(), op.getQueryDims(),
                       op.getKeyDims(), value.dims, dims, op.getDecayAxesAttr(), AxesAttr(), DimsAttr(),
                       /*scale=*/FloatAttr(), /*l2norm=*/FloatAttr(), op.getCausal(), /*normalize=*/false)
          .getOutput();
  // Without the dimension of extent 1.
  SmallVector<ReassociationIndices> groups;
  for (unsigned i = 0; i < rank; ++i) {
    if (groups.empty() || (i != depth && !(i == 1 && depth == 0)))
      groups.emplace_back();
    groups.back().push_back(i);
  }
  return tensor::CollapseShapeOp::create(b, loc, found, groups);
}

Value LinearEmitter::quotient(OpBuilder &nested, Value x, Value divisor) {
  Value zero = arith::ConstantOp::create(nested, loc, nested.getFloatAttr(type, 0));
  Value one = arith::ConstantOp::create(nested, loc, nested.getFloatAttr(type, 1));
  Value isZero = arith::CmpFOp::create(nested, loc, arith::CmpFPredicate::OEQ, divisor, zero);
  Value safe = arith::SelectOp::create(nested, loc, isZero, one, divisor);
  return arith::SelectOp::create(nested, loc, isZero, zero, arith::DivFOp::create(nested, loc, x, safe));
}
