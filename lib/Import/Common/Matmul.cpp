//===- Matmul.cpp - Matmuls with checked operands -------------------------===//
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
