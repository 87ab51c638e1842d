//===- Matmul.cpp - Matmuls and convolutions with checked operands --------===//
#include "saccade/Import/Common/Matmul.h"
#include "saccade/Import/Common/Reductions.h"
#include "saccade/Import/Common/Requirements.h"
#include "saccade/Import/Common/Shapes.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::frontend;

FailureOr<Value> frontend::importMatmul(FrontendOp &op, Value lhs, Value rhs) {
  auto lhsType = cast<RankedTensorType>(lhs.getType()), rhsType = cast<RankedTensorType>(rhs.getType());
  if (lhsType.getRank() == 0 || rhsType.getRank() == 0 || lhsType.getElementType() != rhsType.getElementType())
    return op.error() << "cannot multiply " << lhsType << " and " << rhsType;
  int64_t depth = rhsType.getDimSize(rhsType.getRank() == 1 ? 0 : rhsType.getRank() - 2);
  if (failed(requireEqual(op, depth, lhsType.getShape().back(), "rows of the RHS")))
    return failure();
  Extents batches[] = {extentsOf(op.builder(), lhs), extentsOf(op.builder(), rhs)};
  for (Extents &extents : batches)
    extents.truncate(extents.size() - std::min<size_t>(extents.size(), 2));
  if (failed(broadcastExtents(op.builder(), batches)))
    return op.error() << "the batches of " << lhsType << " and " << rhsType << " do not broadcast to one another";
  return matmul(op.builder(), lhs, rhs);
}

/// The product without bias and scaling, in the accumulator type.
static Value emitTransposedMatmul(ImplicitLocOpBuilder &b, Value lhs, Value rhs, const GemmParams &params) {
  Extents lhsExtents = extentsOf(b, lhs), rhsExtents = extentsOf(b, rhs), loops;
  if (params.transA)
    std::swap(lhsExtents[0], lhsExtents[1]);
  SmallVector<AffineExpr> lhsDims, resultDims;
  for (OpFoldResult extent : ArrayRef(lhsExtents).drop_back()) {
    lhsDims.push_back(b.getAffineDimExpr(loops.size()));
    loops.push_back(extent);
  }
  resultDims = lhsDims;
  AffineExpr column = b.getAffineDimExpr(loops.size()), depth = b.getAffineDimExpr(loops.size() + 1);
  // Prefer the static extent of the contracting dimension.
  OpFoldResult rows = rhsExtents[params.transB ? 1 : 0];
  loops.append({rhsExtents[params.transB ? 0 : 1], isa<Attribute>(rows) ? rows : lhsExtents.back()});
  resultDims.push_back(column);
  lhsDims.push_back(depth);
  if (params.transA)
    std::swap(lhsDims[0], lhsDims[1]);
  SmallVector<AffineExpr> rhsDims = {depth, column};
  if (params.transB)
    std::swap(rhsDims[0], rhsDims[1]);
  auto map = [&](ArrayRef<AffineExpr> dims) { return AffineMap::get(loops.size(), 0, dims, b.getContext()); };
  return contract(b, lhs, rhs, map(lhsDims), map(rhsDims), map(resultDims), loops, getAccumulatorType(elementOf(lhs)));
}

/// alpha · product + beta · bias, with elements of `element`.
static FailureOr<Value> scaleMatmul(FrontendOp &op, Value product, Type element, const GemmParams &params) {
  ImplicitLocOpBuilder &b = op.builder();
  Type sum = getAccumulatorType(element);
  SmallVector<Value> inputs = {product};
  if (params.bias) {
    inputs.push_back(params.bias);
    if (failed(requireBroadcast(op, inputs)))
      return failure();
    if (elementOf(params.bias) != element)
      return op.error() << "the bias is " << params.bias.getType() << ", expected elements of " << element;
  }
  // 0 · NaN is NaN: with beta 0 the bias must not be read.
  if (params.beta == 0)
    inputs.truncate(1);
  if (params.alpha == 1 && inputs.size() == 1)
    return castElements(b, product, element);
  return elementwise(b, inputs, element, [&](OpBuilder &nested, Location loc, ValueRange x) {
    auto scaled = [&](Value number, double factor) {
      Value wide = convert(nested, loc, number, sum);
      return factor == 1 ? wide : mul(nested, loc, wide, makeNumber(nested, loc, sum, factor));
    };
    Value value = scaled(x[0], params.alpha);
    if (x.size() > 1)
      value = add(nested, loc, value, scaled(x[1], params.beta));
    return convert(nested, loc, value, element);
  });
}

FailureOr<Value> frontend::importGemm(FrontendOp &op, Value lhs, Value rhs, const GemmParams &params) {
  ImplicitLocOpBuilder &b = op.builder();
  auto lhsType = cast<RankedTensorType>(lhs.getType()), rhsType = cast<RankedTensorType>(rhs.getType());
  Type element = lhsType.getElementType();
  bool fits = params.transA ? lhsType.getRank() == 2 : lhsType.getRank() > 0;
  if (!fits || rhsType.getRank() != 2 || element != rhsType.getElementType())
    return op.error() << "cannot multiply " << lhsType << " and " << rhsType << ", expected two matrices";
  if (failed(requireEqual(op, rhsType.getDimSize(params.transB ? 1 : 0),
                          lhsType.getDimSize(params.transA ? 0 : lhsType.getRank() - 1), "rows of the RHS")))
    return failure();
  return scaleMatmul(op, emitTransposedMatmul(b, lhs, rhs, params), element, params);
}

FailureOr<Value> frontend::importBatchedGemm(FrontendOp &op, Value lhs, Value rhs, const GemmParams &params) {
  FailureOr<Value> product = importMatmul(op, lhs, rhs);
  if (failed(product))
    return failure();
  return scaleMatmul(op, *product, elementOf(*product), params);
}

FailureOr<Value> frontend::convolvePatches(FrontendOp &op, Value image, Value filters, Value bias) {
  ImplicitLocOpBuilder &b = op.builder();
  auto type = cast<RankedTensorType>(image.getType()), filter = cast<RankedTensorType>(filters.getType());
  if (type.getRank() != 4 || filter.getRank() != 4 || type.getElementType() != filter.getElementType() ||
      !isa<FloatType>(type.getElementType()))
    return op.error() << "cannot convolve " << type << " and " << filter << ", expected images in two dimensions";
  if (ShapedType::isDynamic(type.getDimSize(1)) || !filter.hasStaticShape() || filter.getNumElements() == 0)
    return op.error() << "the channels of " << type << " and the filters " << filter << " must be static and not empty";
  if (failed(requireEqual(op, filter.getDimSize(1), type.getDimSize(1), "channels of the filters")))
    return failure();
  ArrayRef<int64_t> kernel = filter.getShape().drop_front(2);
  for (unsigned i : {0u, 1u})
    if (!type.isDynamicDim(2 + i) && type.getDimSize(2 + i) % kernel[i] != 0)
      return op.error() << "dimension " << 2 + i << " of " << type << ", expected a multiple of the filter size "
                        << kernel[i];
  Extents extents = extentsOf(b, image);
  OpFoldResult high = b.getIndexAttr(kernel[0]), wide = b.getIndexAttr(kernel[1]);
  OpFoldResult rows = divideExtents(b, extents[2], high), columns = divideExtents(b, extents[3], wide);
  Value cut = reshape(b, image, {extents[0], extents[1], rows, high, columns, wide});
  Value patches = transpose(b, cut, {0, 2, 4, 1, 3, 5});
  OpFoldResult depth = b.getIndexAttr(filter.getDimSize(1) * kernel[0] * kernel[1]);
  OpFoldResult count = b.getIndexAttr(filter.getDimSize(0));
  patches = reshape(b, patches, {extents[0], rows, columns, depth});
  Value matrix = reshape(b, filters, {count, depth});
  AffineExpr n, y, x, m, k;
  bindDims(b.getContext(), n, m, y, x, k);
  auto map = [&](ArrayRef<AffineExpr> dims) { return AffineMap::get(5, 0, dims, b.getContext()); };
  Type element = type.getElementType(), sum = getAccumulatorType(element);
  Value product = contract(b, patches, matrix, map({n, y, x, k}), map({m, k}), map({n, m, y, x}),
                           {extents[0], count, rows, columns, depth}, sum);
  SmallVector<Value> inputs = {product};
  if (bias) {
    auto biasType = cast<RankedTensorType>(bias.getType());
    if (biasType.getRank() != 1 || biasType.getElementType() != element ||
        failed(requireEqual(op, biasType.getDimSize(0), filter.getDimSize(0), "elements of the bias")))
      return op.error() << "the bias is " << biasType << ", expected one " << element << " per filter";
    inputs.push_back(reshape(b, bias, {count, b.getIndexAttr(1), b.getIndexAttr(1)}));
  }
  return elementwise(b, inputs, element, [&](OpBuilder &nested, Location loc, ValueRange in) {
    Value value = in[0];
    if (bias)
      value = add(nested, loc, value, convert(nested, loc, in[1], sum));
    return convert(nested, loc, value, element);
  });
}
