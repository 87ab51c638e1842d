//===- Sorts.cpp - PyTorch sort and topk ----------------------------------===//
//
// The place of an element is the number of elements that come before it: n² comparisons for each row of n. Equal
// elements keep their order, and NaN is the largest, as in PyTorch's stable sort.
//
//===----------------------------------------------------------------------===//
#include "Torch.h"
#include "saccade/Import/Common/Functions.h"
#include "saccade/Import/Common/Gather.h"
#include "saccade/Import/Common/Views.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;
using Predicate = arith::CmpIPredicate;

/// Whether x, at position i, comes before y, at position j.
static Value comesBefore(OpBuilder &b, Location loc, bool isDescending, Value x, Value i, Value y, Value j) {
  if (x.getType().isInteger(1)) { // compared unsigned: true is greater than false
    x = frontend::convert(b, loc, x, b.getI8Type());
    y = frontend::convert(b, loc, y, b.getI8Type());
  }
  Value isFirst = frontend::compare(b, loc, isDescending ? Predicate::sgt : Predicate::slt, x, y);
  Value isSame = frontend::compare(b, loc, Predicate::eq, x, y);
  if (isa<FloatType>(x.getType())) {
    Value isNaN = frontend::isNaN(b, loc, x), other = frontend::isNaN(b, loc, y);
    Value one = isDescending ? isNaN : other, two = isDescending ? other : isNaN;
    isFirst = b.createOrFold<arith::OrIOp>(loc, isFirst,
                                           b.createOrFold<arith::AndIOp>(loc, one, frontend::logicalNot(b, loc, two)));
    isSame = b.createOrFold<arith::OrIOp>(loc, isSame, b.createOrFold<arith::AndIOp>(loc, isNaN, other));
  }
  Value isEarlier = frontend::compare(b, loc, Predicate::slt, i, j);
  return b.createOrFold<arith::OrIOp>(loc, isFirst, b.createOrFold<arith::AndIOp>(loc, isSame, isEarlier));
}

/// Σ over positions j along `axis` of `value`, for each position i along it, as i64. `value` takes i, j, and the
/// elements of `inputs`, of which those that are reduced are read at j and the others at i.
static Value sumAlong(ImplicitLocOpBuilder &b, ArrayRef<OpFoldResult> extents, int64_t axis, ValueRange inputs,
                      ArrayRef<bool> areReduced, frontend::ScalarBuilder value) {
  int64_t rank = extents.size();
  SmallVector<AffineMap> maps;
  for (bool isReduced : areReduced) {
    SmallVector<AffineExpr> dims;
    for (int64_t i = 0; i < rank; ++i)
      dims.push_back(b.getAffineDimExpr(i == axis && isReduced ? rank : i));
    maps.push_back(AffineMap::get(rank + 1, 0, dims, b.getContext()));
  }
  maps.push_back(b.getMultiDimIdentityMap(rank + 1).getMajorSubMap(rank));
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  iterators.push_back(utils::IteratorType::reduction);
  Value init = frontend::splat(b, extents, b.getI64Type(), 0);
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) {
    SmallVector<Value> given = {linalg::IndexOp::create(nested, loc, axis), linalg::IndexOp::create(nested, loc, rank)};
    llvm::append_range(given, x.drop_back());
    Value own = frontend::convert(nested, loc, value(nested, loc, given), nested.getI64Type());
    linalg::YieldOp::create(nested, loc, frontend::add(nested, loc, x.back(), own));
  };
  return linalg::GenericOp::create(b, TypeRange{init.getType()}, inputs, ValueRange{init}, maps, iterators, body)
      .getResult(0);
}

/// The positions of the first `count` elements along `axis` in their order.
static Value sortedPositions(ImplicitLocOpBuilder &b, Value tensor, int64_t axis, bool isDescending,
                             OpFoldResult count) {
  Extents extents = frontend::extentsOf(b, tensor), made(extents);
  made[axis] = count;
  Value places =
      sumAlong(b, extents, axis, {tensor, tensor}, {false, true}, [&](OpBuilder &nested, Location loc, ValueRange x) {
        return comesBefore(nested, loc, isDescending, x[3], x[1], x[2], x[0]);
      });
  return sumAlong(b, made, axis, places, {true}, [](OpBuilder &nested, Location loc, ValueRange x) {
    Value i = frontend::convert(nested, loc, x[0], x[2].getType()),
          j = frontend::convert(nested, loc, x[1], i.getType());
    Value isHere = frontend::compare(nested, loc, Predicate::eq, x[2], i);
    return frontend::select(nested, loc, isHere, j, frontend::makeNumber(nested, loc, j.getType(), 0));
  });
}

/// The elements in their order and their positions: all of them (sort), or the first `k` (topk).
static LogicalResult translateSort(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  bool isPart = a.op.getName() == "aten.topk";
  bool isDescending = isPart ? a.integer("largest", 1) != 0 : a.flag("descending");
  (void)a.attribute("stable"), (void)a.attribute("sorted"); // it always is
  int64_t rank = rankOf(*tensor);
  FailureOr<int64_t> axis = a.axis("dim", -1, std::max<int64_t>(rank, 1));
  FailureOr<OpFoldResult> count = a.size("k", 1);
  if (failed(axis) || failed(count))
    return failure();
  OpFoldResult extent = rank ? frontend::extentsOf(b, *tensor)[*axis] : OpFoldResult(b.getIndexAttr(1));
  std::optional<int64_t> first = getConstantIntValue(*count), all = getConstantIntValue(extent);
  if (isPart && first && (*first < 0 || (all && *first > *all)))
    return a.op.error() << "'k' is " << *first << ", expected at most the extent of dimension " << *axis << " of "
                        << tensor->getType();
  if (rank == 0 && isConstantIntValue(*count, 1)) {
    results.append({*tensor, frontend::filled(b, {}, b.getI64IntegerAttr(0))});
    return success();
  }
  if (rank == 0)
    return a.op.error() << "'k' is not 1, but " << tensor->getType() << " has one element";
  OpFoldResult made = isPart ? *count : extent;
  if (isConstantIntValue(made, 0) || llvm::is_contained(cast<RankedTensorType>(tensor->getType()).getShape(), 0)) {
    Extents extents = frontend::extentsOf(b, *tensor);
    extents[*axis] = made;
    results.append(
        {frontend::splat(b, extents, elementOf(*tensor), 0), frontend::splat(b, extents, b.getI64Type(), 0)});
    return success();
  }
  // Of an open extent all are sorted first: the slice checks that there are as many as `k`.
  bool isChecked = !isPart || (first && all);
  Value positions = sortedPositions(b, *tensor, *axis, isDescending, isChecked ? made : extent);
  if (!isChecked) {
    Extents sizes = frontend::extentsOf(b, positions);
    sizes[*axis] = made;
    positions = frontend::firstOf(b, positions, sizes);
  }
  FailureOr<Value> values = frontend::gatherElements(a.op, *tensor, positions, *axis);
  if (failed(values))
    return failure();
  results.append({*values, positions});
  return success();
}

void torch::addSorts(frontend::Frontend &frontend) {
  for (StringRef name : {"aten.sort", "aten.topk"})
    add(frontend, name, translateSort);
}
