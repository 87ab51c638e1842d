//===- Contractions.cpp - Reductions, contractions and softmax ------------===//
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Import/Common/Structured.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::frontend;

static bool is16BitFloat(Type type) { return isa<FloatType>(type) && type.getIntOrFloatBitWidth() == 16; }

Value frontend::reduce(ImplicitLocOpBuilder &b, Value tensor, ArrayRef<int64_t> dims, bool keepDims, TypedAttr start,
                       ScalarBuilder combine) {
  Type element = start.getType();
  Extents extents = extentsOf(b, tensor), result;
  SmallVector<AffineExpr> kept;
  SmallVector<utils::IteratorType> iterators;
  for (auto [i, extent] : llvm::enumerate(extents)) {
    bool isReduced = llvm::is_contained(dims, static_cast<int64_t>(i));
    iterators.push_back(isReduced ? utils::IteratorType::reduction : utils::IteratorType::parallel);
    if (!isReduced)
      kept.push_back(b.getAffineDimExpr(i));
    if (!isReduced || keepDims)
      result.push_back(isReduced ? b.getIndexAttr(1) : extent);
    if (isReduced && keepDims)
      kept.push_back(b.getAffineConstantExpr(0));
  }
  AffineMap maps[] = {b.getMultiDimIdentityMap(extents.size()),
                      AffineMap::get(extents.size(), 0, kept, b.getContext())};
  Value init = splat(b, result, arith::ConstantOp::create(b, start));
  // A reduction over no elements is its start value.
  if (llvm::any_of(dims, [&](int64_t dim) { return isConstantIntValue(extents[dim], 0); }))
    return init;
  return linalg::GenericOp::create(b, TypeRange{init.getType()}, ValueRange{tensor}, ValueRange{init}, maps, iterators,
                                   [&](OpBuilder &nested, Location loc, ValueRange arguments) {
                                     SmallVector<Value> inputs = {convert(nested, loc, arguments[0], element),
                                                                  arguments[1]};
                                     linalg::YieldOp::create(nested, loc, combine(nested, loc, inputs));
                                   })
      .getResult(0);
}

Value frontend::contract(ImplicitLocOpBuilder &b, Value lhs, Value rhs, AffineMap lhsMap, AffineMap rhsMap,
                         AffineMap resultMap, ArrayRef<OpFoldResult> extents, Type element) {
  Extents result;
  for (AffineExpr each : resultMap.getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(each);
    result.push_back(dim ? extents[dim.getPosition()] : OpFoldResult(b.getIndexAttr(1)));
  }
  Value init = splat(b, result, element, 0);
  // The result is empty, or the reduction is over no elements.
  if (llvm::any_of(extents, [](OpFoldResult extent) { return isConstantIntValue(extent, 0); }))
    return init;
  auto isNamed = [&](ArrayRef<AffineMap> maps) { return maps == ArrayRef<AffineMap>({lhsMap, rhsMap, resultMap}); };
  if (isNamed(linalg::MatmulOp::getDefaultIndexingMaps(b.getContext())))
    return linalg::MatmulOp::create(b, ValueRange{lhs, rhs}, ValueRange{init}).getResult(0);
  if (isNamed(linalg::BatchMatmulOp::getDefaultIndexingMaps(b.getContext())))
    return linalg::BatchMatmulOp::create(b, ValueRange{lhs, rhs}, ValueRange{init}).getResult(0);

  SmallVector<utils::IteratorType> iterators(extents.size(), utils::IteratorType::reduction);
  for (AffineExpr each : resultMap.getResults())
    if (auto dim = dyn_cast<AffineDimExpr>(each))
      iterators[dim.getPosition()] = utils::IteratorType::parallel;
  return linalg::GenericOp::create(b, TypeRange{init.getType()}, ValueRange{lhs, rhs}, ValueRange{init},
                                   ArrayRef<AffineMap>{lhsMap, rhsMap, resultMap}, iterators,
                                   [&](OpBuilder &nested, Location loc, ValueRange arguments) {
                                     Value x = convert(nested, loc, arguments[0], element);
                                     Value y = convert(nested, loc, arguments[1], element);
                                     Value sum = add(nested, loc, arguments[2], mul(nested, loc, x, y));
                                     linalg::YieldOp::create(nested, loc, sum);
                                   })
      .getResult(0);
}

Value frontend::matmul(ImplicitLocOpBuilder &b, Value lhs, Value rhs) {
  auto lhsType = cast<RankedTensorType>(lhs.getType()), rhsType = cast<RankedTensorType>(rhs.getType());
  bool hasRows = lhsType.getRank() > 1, hasColumns = rhsType.getRank() > 1;
  Extents lhsExtents = extentsOf(b, lhs), rhsExtents = extentsOf(b, rhs);
  Extents lhsBatches(ArrayRef(lhsExtents).drop_back(hasRows ? 2 : 1));
  Extents rhsBatches(ArrayRef(rhsExtents).drop_back(hasColumns ? 2 : 1));
  Extents loops = *broadcastExtents(b, {lhsBatches, rhsBatches});
  int64_t batches = loops.size();

  auto mapBatches = [&](ArrayRef<OpFoldResult> own) {
    SmallVector<AffineExpr> expressions;
    for (auto [i, extent] : llvm::enumerate(own)) {
      int64_t loop = batches - own.size() + i;
      bool broadcasts = isConstantIntValue(extent, 1) && !isConstantIntValue(loops[loop], 1);
      expressions.push_back(broadcasts ? b.getAffineConstantExpr(0) : b.getAffineDimExpr(loop));
    }
    return expressions;
  };
  SmallVector<AffineExpr> lhsDims = mapBatches(lhsBatches), rhsDims = mapBatches(rhsBatches), resultDims;
  for (int64_t i = 0; i < batches; ++i)
    resultDims.push_back(b.getAffineDimExpr(i));
  auto addLoop = [&](OpFoldResult extent) {
    loops.push_back(extent);
    return b.getAffineDimExpr(loops.size() - 1);
  };
  AffineExpr row, column;
  if (hasRows)
    resultDims.push_back(row = addLoop(lhsExtents[lhsExtents.size() - 2]));
  if (hasColumns)
    resultDims.push_back(column = addLoop(rhsExtents.back()));
  // Prefer the static extent of the contracting dimension.
  OpFoldResult rhsDepth = rhsExtents[rhsExtents.size() - (hasColumns ? 2 : 1)];
  AffineExpr depth = addLoop(isa<Attribute>(rhsDepth) ? rhsDepth : lhsExtents.back());
  if (hasRows)
    lhsDims.push_back(row);
  lhsDims.push_back(depth);
  rhsDims.push_back(depth);
  if (hasColumns)
    rhsDims.push_back(column);

  Type element = lhsType.getElementType();
  auto map = [&](ArrayRef<AffineExpr> dims) { return AffineMap::get(loops.size(), 0, dims, b.getContext()); };
  Value sums = contract(b, lhs, rhs, map(lhsDims), map(rhsDims), map(resultDims), loops,
                        is16BitFloat(element) ? b.getF32Type() : element);
  return castElements(b, sums, element);
}

Value frontend::softmax(ImplicitLocOpBuilder &b, Value tensor, int64_t dim) {
  Type element = getElementTypeOrSelf(tensor.getType());
  Value wide = is16BitFloat(element) ? castElements(b, tensor, b.getF32Type()) : tensor;
  Value empty = tensor::EmptyOp::create(b, extentsOf(b, wide), getElementTypeOrSelf(wide.getType()));
  Value result = linalg::SoftmaxOp::create(b, wide.getType(), wide, empty, dim).getResult()[0];
  return castElements(b, result, element);
}
