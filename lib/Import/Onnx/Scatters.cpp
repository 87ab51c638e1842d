//===- Scatters.cpp - ONNX scatter operators ------------------------------===//
//
// Scatter is computed as a gather, because linalg ops write every element once: a reduction over the updates finds the
// number of the last update to each position, or −1. Updates with an out-of-range index are ignored.
//
//===----------------------------------------------------------------------===//
#include "Onnx.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using frontend::Extents;

static Value sizeOf(ImplicitLocOpBuilder &b, OpFoldResult extent) {
  return getValueOrCreateConstantIndexOp(b, b.getLoc(), extent);
}

/// Rejects scatter with a reduction and mismatched operands.
static LogicalResult verifyScatter(FrontendOp &op) {
  if (failed(requireOperands(op, 3, 3)))
    return failure();
  if (StringRef reduction = op.text("reduction", "none"); reduction != "none")
    return op.error() << "the reduction '" << reduction << "' is not supported";
  if (!isa<IntegerType>(elementOf(op.operand(1))))
    return op.error() << "indices are " << op.operand(1).getType() << ", expected integers";
  if (elementOf(op.operand(0)) != elementOf(op.operand(2)))
    return op.error() << "updates are " << op.operand(2).getType() << ", expected elements of "
                      << elementOf(op.operand(0));
  return success();
}

/// For each position in the leading dimensions of the result, the number of the last update written there, or −1.
/// `columns` are the indices along these dimensions, one element per update.
static Value findWriters(ImplicitLocOpBuilder &b, ArrayRef<Value> columns, ArrayRef<OpFoldResult> extents) {
  int64_t rank = extents.size();
  SmallVector<Value> sizes = llvm::map_to_vector(extents, [&](OpFoldResult each) { return sizeOf(b, each); });
  Value init = frontend::splat(b, extents, b.getI64Type(), -1);
  SmallVector<AffineMap> maps(columns.size(), AffineMap::get(rank + 1, 0, b.getAffineDimExpr(rank)));
  maps.push_back(b.getMultiDimIdentityMap(rank + 1).getMajorSubMap(rank));
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  iterators.push_back(utils::IteratorType::reduction);
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) {
    Value isHere;
    for (int64_t i = 0; i < rank; ++i) {
      Value at = linalg::IndexOp::create(nested, loc, i),
            expected = frontend::normalizeIndex(nested, loc, x[i], sizes[i]);
      Value same = frontend::compare(nested, loc, arith::CmpIPredicate::eq, expected, at);
      isHere = isHere ? nested.createOrFold<arith::AndIOp>(loc, isHere, same) : same;
    }
    Value number = frontend::convert(nested, loc, linalg::IndexOp::create(nested, loc, rank), nested.getI64Type());
    Value none = frontend::makeNumber(nested, loc, nested.getI64Type(), -1);
    Value own = frontend::select(nested, loc, isHere, number, none);
    linalg::YieldOp::create(nested, loc, frontend::maximum(nested, loc, x.back(), own));
  };
  return linalg::GenericOp::create(b, TypeRange{init.getType()}, columns, ValueRange{init}, maps, iterators, body)
      .getResult(0);
}

/// The last dimension of the indices is a position in the leading dimensions of the tensor. Updates have the other
/// dimensions of the indices, then those of the tensor.
static LogicalResult translateScatterND(FrontendOp &op, Values &results) {
  if (failed(verifyScatter(op)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value tensor = op.operand(0), indices = op.operand(1), updates = op.operand(2);
  int64_t rank = rankOf(tensor), depth = rankOf(indices);
  int64_t count = depth ? cast<RankedTensorType>(indices.getType()).getShape().back() : 0;
  if (depth < 1 || ShapedType::isDynamic(count) || count < 1 || count > rank)
    return op.error() << "indices are " << indices.getType() << ", expected a static last dimension of 1 to " << rank;
  Extents extents = frontend::extentsOf(b, tensor), from = frontend::extentsOf(b, indices);
  auto type = cast<RankedTensorType>(updates.getType());
  Extents fitting(from.begin(), from.end() - 1);
  fitting.append(extents.begin() + count, extents.end());
  bool fits = type.getRank() == static_cast<int64_t>(fitting.size());
  for (int64_t i = 0; fits && i < type.getRank(); ++i)
    fits = type.isDynamicDim(i) || getConstantIntValue(fitting[i]).value_or(type.getDimSize(i)) == type.getDimSize(i);
  if (!fits)
    return op.error() << "updates are " << type << ", expected a shape that fits indices " << indices.getType()
                      << " and tensor " << tensor.getType();
  // Flatten the updates.
  OpFoldResult number = frontend::multiplyExtents(b, ArrayRef(from).drop_back());
  if (isConstantIntValue(number, 0)) {
    results.push_back(tensor);
    return success();
  }
  Extents rows = {number};
  rows.append(extents.begin() + count, extents.end());
  Value listed = frontend::reshape(b, updates, rows),
        table = frontend::reshape(b, indices, {number, b.getIndexAttr(count)});
  SmallVector<Value> columns;
  for (int64_t i = 0; i < count; ++i)
    columns.push_back(frontend::selectIndex(b, table, 1, i));
  Value writers = findWriters(b, columns, ArrayRef(extents).take_front(count));
  if (count < rank)
    writers = frontend::unsqueeze(b, writers, llvm::to_vector(llvm::seq(count, rank)));
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) {
    Value zero = frontend::makeNumber(nested, loc, nested.getI64Type(), 0);
    Value isWritten = frontend::compare(nested, loc, arith::CmpIPredicate::sge, x[rank + 1], zero);
    Value first = frontend::maximum(nested, loc, x[rank + 1], zero);
    SmallVector<Value> position = {frontend::convert(nested, loc, first, nested.getIndexType())};
    llvm::append_range(position, x.slice(count, rank - count));
    return frontend::select(nested, loc, isWritten, tensor::ExtractOp::create(nested, loc, listed, position), x[rank]);
  };
  results.push_back(frontend::generate(b, extents, {tensor, writers}, elementOf(tensor), body));
  return success();
}

/// Each update goes to its own position, with the position along `axis` replaced by the index.
static LogicalResult translateScatterElements(FrontendOp &op, Values &results) {
  if (failed(verifyScatter(op)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value tensor = op.operand(0), indices = op.operand(1), updates = op.operand(2);
  int64_t rank = rankOf(tensor);
  FailureOr<int64_t> axis = resolveAxis(op, op.integer("axis", 0), rank);
  if (failed(axis))
    return failure();
  auto type = cast<RankedTensorType>(tensor.getType()), found = cast<RankedTensorType>(indices.getType()),
       given = cast<RankedTensorType>(updates.getType());
  bool fits = found.getRank() == rank && given.getRank() == rank;
  for (int64_t i = 0; fits && i < rank; ++i) {
    int64_t own = found.getDimSize(i), other = given.getDimSize(i);
    fits = (i == *axis || type.isDynamicDim(i) || found.isDynamicDim(i) || own <= type.getDimSize(i)) &&
           (own == other || found.isDynamicDim(i) || given.isDynamicDim(i));
  }
  if (!fits)
    return op.error() << "indices are " << found << " and updates " << given << ", expected equal shapes of at most "
                      << type << " except along axis " << *axis;
  if (llvm::is_contained(found.getShape(), 0) || llvm::is_contained(given.getShape(), 0)) {
    results.push_back(tensor);
    return success();
  }
  Extents extents = frontend::extentsOf(b, tensor), from = frontend::extentsOf(b, indices);
  // For each position covered by the indices, the position along the axis of the last update written there, or −1.
  Extents places = from;
  places[*axis] = extents[*axis];
  Value size = sizeOf(b, extents[*axis]), init = frontend::splat(b, places, b.getI64Type(), -1);
  SmallVector<AffineExpr> along;
  for (int64_t i = 0; i < rank; ++i)
    along.push_back(b.getAffineDimExpr(i == *axis ? rank : i));
  AffineMap maps[] = {AffineMap::get(rank + 1, 0, along, b.getContext()),
                      b.getMultiDimIdentityMap(rank + 1).getMajorSubMap(rank)};
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  iterators.push_back(utils::IteratorType::reduction);
  auto find = [&](OpBuilder &nested, Location loc, ValueRange x) {
    Type wide = nested.getI64Type();
    Value at = linalg::IndexOp::create(nested, loc, *axis),
          expected = frontend::normalizeIndex(nested, loc, x[0], size);
    Value place = frontend::convert(nested, loc, linalg::IndexOp::create(nested, loc, rank), wide);
    Value isHere = frontend::compare(nested, loc, arith::CmpIPredicate::eq, expected, at);
    Value own = frontend::select(nested, loc, isHere, place, frontend::makeNumber(nested, loc, wide, -1));
    linalg::YieldOp::create(nested, loc, frontend::maximum(nested, loc, x[1], own));
  };
  Value writers = linalg::GenericOp::create(b, TypeRange{init.getType()}, ValueRange{indices}, ValueRange{init}, maps,
                                            iterators, find)
                      .getResult(0);
  SmallVector<Value> limits = llvm::map_to_vector(places, [&](OpFoldResult each) { return sizeOf(b, each); });
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) {
    // Clamp positions beyond the indices, and discard the element read there.
    Value isThere = arith::ConstantIntOp::create(nested, loc, 1, 1),
          one = arith::ConstantIndexOp::create(nested, loc, 1);
    SmallVector<Value> position;
    for (auto [i, limit] : llvm::enumerate(limits)) {
      Value isIn = frontend::compare(nested, loc, arith::CmpIPredicate::slt, x[i], limit);
      isThere = nested.createOrFold<arith::AndIOp>(loc, isThere, isIn);
      position.push_back(frontend::minimum(nested, loc, x[i], frontend::sub(nested, loc, limit, one)));
    }
    Value writer = tensor::ExtractOp::create(nested, loc, writers, position);
    Value zero = frontend::makeNumber(nested, loc, writer.getType(), 0);
    Value isWritten = frontend::compare(nested, loc, arith::CmpIPredicate::sge, writer, zero);
    isThere = nested.createOrFold<arith::AndIOp>(loc, isThere, isWritten);
    position[*axis] =
        frontend::convert(nested, loc, frontend::maximum(nested, loc, writer, zero), nested.getIndexType());
    return frontend::select(nested, loc, isThere, tensor::ExtractOp::create(nested, loc, updates, position), x[rank]);
  };
  results.push_back(frontend::generate(b, extents, tensor, elementOf(tensor), body));
  return success();
}

void onnx::addScatters(frontend::Frontend &frontend) {
  frontend.translators["ScatterND"] = translateScatterND;
  frontend.translators["ScatterElements"] = frontend.translators["Scatter"] = translateScatterElements;
}
