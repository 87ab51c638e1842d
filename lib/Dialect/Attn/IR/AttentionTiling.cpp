//===- AttentionTiling.cpp - attn.attention over batch, head and queries ------===//
//
// TilingInterface for the three parallel dimensions of attention. Keys are tiled by attn-tile-keys, because the bounds
// of their loop depend on the mask.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include "saccade/Dialect/Attn/IR/AttentionFields.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

enum Loop : unsigned { BatchLoop, HeadLoop, QueryLoop, NumLoops };

/// The slice of an operand for a tile of batches, heads and positions. A null size takes the whole dimension.
struct TileOfOperand {
  OpFoldResult batch, batches, head, heads, position, positions;

  Value slice(OpBuilder &b, Location loc, Value value, DimsAttr dims) const {
    SmallVector<OpFoldResult> offsets, sizes, strides(dims.size(), b.getIndexAttr(1));
    slicing(b, loc, value, dims, offsets, sizes);
    return tensor::ExtractSliceOp::create(b, loc, value, offsets, sizes, strides);
  }

  void slicing(OpBuilder &b, Location loc, Value value, DimsAttr dims, SmallVectorImpl<OpFoldResult> &offsets,
               SmallVectorImpl<OpFoldResult> &sizes) const {
    for (Dim dim : dims.getDims()) {
      OpFoldResult offset = dim == Dim::Batch ? batch : dim == Dim::Head ? head : dim == Dim::Seq ? position : nullptr;
      OpFoldResult size = dim == Dim::Batch  ? batches
                          : dim == Dim::Head ? heads
                          : dim == Dim::Seq  ? positions
                                             : nullptr;
      offsets.push_back(size ? offset : b.getIndexAttr(0));
      sizes.push_back(size ? size : getDimSize(b, loc, value, dims, dim));
    }
  }
};

OpFoldResult add(OpBuilder &b, Location loc, OpFoldResult lhs, OpFoldResult rhs) {
  AffineExpr s0, s1;
  bindSymbols(b.getContext(), s0, s1);
  return affine::makeComposedFoldedAffineApply(b, loc, s0 + s1, {lhs, rhs});
}

/// max(value, 1), for divisors: without heads the tile does not run, but the division may be hoisted.
OpFoldResult atLeastOne(OpBuilder &b, Location loc, OpFoldResult value) {
  if (std::optional<int64_t> constant = getConstantIntValue(value))
    return b.getIndexAttr(std::max<int64_t>(*constant, 1));
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  return arith::MaxSIOp::create(b, loc, cast<Value>(value), one).getResult();
}

/// Whether a tile of `heads` query heads has all of them.
bool hasAllHeads(AttentionOp op, OpFoldResult heads, OpFoldResult queryHeads) {
  if (isEqualConstantIntOrValue(heads, queryHeads))
    return true;
  auto size = dyn_cast<Value>(heads) ? cast<Value>(heads).getDefiningOp<tensor::DimOp>() : tensor::DimOp();
  return size && size.getSource() == op.getQuery() && size.getConstantIndex() == op.getQueryDims().position(Dim::Head);
}

/// The first KV head and the number of KV heads of a tile of query heads, which is one head or whole groups.
std::pair<OpFoldResult, OpFoldResult> keyHeads(OpBuilder &b, AttentionOp op, OpFoldResult head, OpFoldResult heads) {
  Location loc = op.getLoc();
  OpFoldResult queryHeads = getDimSize(b, loc, op.getQuery(), op.getQueryDims(), Dim::Head);
  OpFoldResult keyHeads = getDimSize(b, loc, op.getKey(), op.getKeyDims(), Dim::Head);
  if (isEqualConstantIntOrValue(queryHeads, keyHeads))
    return {head, heads};
  if (hasAllHeads(op, heads, queryHeads))
    return {head, keyHeads};
  AffineExpr s0, s1, s2;
  bindSymbols(b.getContext(), s0, s1, s2);
  OpFoldResult group =
      affine::makeComposedFoldedAffineApply(b, loc, s0.floorDiv(s1), {queryHeads, atLeastOne(b, loc, keyHeads)});
  group = atLeastOne(b, loc, group);
  OpFoldResult count = isConstantIntValue(heads, 1)
                           ? heads
                           : affine::makeComposedFoldedAffineApply(b, loc, s0.ceilDiv(s1), {heads, group});
  return {affine::makeComposedFoldedAffineApply(b, loc, s0.floorDiv(s1), {head, group}), count};
}

/// Whether `keyHeads` has the KV heads of a tile of `heads` query heads at any multiple of `heads`.
bool hasWholeGroups(OpBuilder &b, AttentionOp op, OpFoldResult heads) {
  OpFoldResult queryHeads = getDimSize(b, op.getLoc(), op.getQuery(), op.getQueryDims(), Dim::Head);
  OpFoldResult keyHeads = getDimSize(b, op.getLoc(), op.getKey(), op.getKeyDims(), Dim::Head);
  if (isConstantIntValue(heads, 1) || isConstantIntValue(keyHeads, 1) || queryHeads == keyHeads ||
      hasAllHeads(op, heads, queryHeads))
    return true;
  std::optional<int64_t> tile = getConstantIntValue(heads), queries = getConstantIntValue(queryHeads),
                         keys = getConstantIntValue(keyHeads);
  if (!queries || !keys || *keys == 0)
    return false;
  int64_t group = *queries / *keys;
  return group <= 1 || (tile && *tile > 0 && (*tile % group == 0 || group % *tile == 0));
}

/// The length operand of a tile: the lengths of its batches, or the whole extent if no length is given.
Value lengthOfTile(OpBuilder &b, AttentionOp op, Value length, const TileOfOperand &tile, OpFoldResult extent,
                   OpFoldResult start) {
  Location loc = op.getLoc();
  if (!length)
    return getValueOrCreateConstantIndexOp(b, loc, add(b, loc, extent, start));
  if (!isa<RankedTensorType>(length.getType()))
    return length;
  return tensor::ExtractSliceOp::create(b, loc, length, ArrayRef<OpFoldResult>{tile.batch},
                                        ArrayRef<OpFoldResult>{tile.batches},
                                        ArrayRef<OpFoldResult>{b.getIndexAttr(1)});
}

} // namespace

SmallVector<utils::IteratorType> AttentionOp::getLoopIteratorTypes() {
  return SmallVector<utils::IteratorType>(NumLoops, utils::IteratorType::parallel);
}

SmallVector<Range> AttentionOp::getIterationDomain(OpBuilder &b) {
  SmallVector<Range> domain;
  for (Dim dim : {Dim::Batch, Dim::Head, Dim::Seq})
    domain.push_back({b.getIndexAttr(0), getDimSize(b, getLoc(), getQuery(), getQueryDims(), dim), b.getIndexAttr(1)});
  return domain;
}

FailureOr<TilingResult> AttentionOp::getTiledImplementation(OpBuilder &b, ArrayRef<OpFoldResult> offsets,
                                                            ArrayRef<OpFoldResult> sizes) {
  Location loc = getLoc();
  if (isRagged())
    return emitOpError() << "is ragged, expected attn-tile-queries to split it into sequences first";
  if (!hasWholeGroups(b, *this, sizes[HeadLoop]))
    return emitOpError()
           << "is tiled by query heads that share no or several KV heads in part, expected one head or whole "
              "groups";
  TileOfOperand query{offsets[BatchLoop], sizes[BatchLoop],   offsets[HeadLoop],
                      sizes[HeadLoop],    offsets[QueryLoop], sizes[QueryLoop]};
  auto [keyHead, keyHeadCount] = keyHeads(b, *this, query.head, query.heads);
  TileOfOperand keys{query.batch, query.batches, keyHead, keyHeadCount, {}, {}};

  SmallVector<Type> resultTypes;
  for (OpResult result : getOperation()->getResults()) {
    SmallVector<OpFoldResult> resultOffsets, resultSizes;
    if (failed(getResultTilePosition(b, result.getResultNumber(), offsets, sizes, resultOffsets, resultSizes)))
      return failure();
    resultTypes.push_back(
        tensor::ExtractSliceOp::inferResultType(cast<RankedTensorType>(result.getType()), resultSizes));
  }
  AttentionFields fields(*this, resultTypes);

  SmallVector<OpFoldResult> start(4, b.getIndexAttr(0)),
      tileStart = {query.batch, query.head, query.position, start[3]};
  if (!getAt().empty())
    start = getAsOpFoldResult(getAt());
  fields.qLen =
      lengthOfTile(b, *this, getQLen(), query, getDimSize(b, loc, getQuery(), getQueryDims(), Dim::Seq), start[2]);
  fields.kvLen =
      lengthOfTile(b, *this, getKvLen(), query, getDimSize(b, loc, getKey(), getKeyDims(), Dim::Seq), start[3]);
  fields.at.clear();
  for (auto [first, offset] : llvm::zip_equal(start, tileStart))
    fields.at.push_back(getValueOrCreateConstantIndexOp(b, loc, add(b, loc, first, offset)));
  fields.query = query.slice(b, loc, getQuery(), getQueryDims());
  fields.key = keys.slice(b, loc, getKey(), getKeyDims());
  fields.value = keys.slice(b, loc, getValue(), getValueDims());
  if (getSink() && isa<RankedTensorType>(getSink().getType()))
    fields.sink =
        tensor::ExtractSliceOp::create(b, loc, getSink(), ArrayRef<OpFoldResult>{query.head},
                                       ArrayRef<OpFoldResult>{query.heads}, ArrayRef<OpFoldResult>{b.getIndexAttr(1)});
  AttentionOp tiled = fields.create(b, loc);
  cloneRegions(*this, tiled);
  tiled->setDiscardableAttrs((*this)->getDiscardableAttrDictionary());
  SmallVector<Operation *> slices;
  for (Value tile : {fields.query, fields.key, fields.value})
    slices.push_back(tile.getDefiningOp());
  return TilingResult{{tiled}, SmallVector<Value>(tiled->getResults()), slices};
}

LogicalResult AttentionOp::getResultTilePosition(OpBuilder &b, unsigned resultNumber, ArrayRef<OpFoldResult> offsets,
                                                 ArrayRef<OpFoldResult> sizes, SmallVector<OpFoldResult> &resultOffsets,
                                                 SmallVector<OpFoldResult> &resultSizes) {
  OpResult result = getOperation()->getResult(resultNumber);
  for (auto [dim, extent] : llvm::zip_equal(getResultDims(result), cast<ShapedType>(result.getType()).getShape())) {
    if (dim != Dim::Depth) {
      unsigned loop = dim == Dim::Batch ? BatchLoop : dim == Dim::Head ? HeadLoop : QueryLoop;
      resultOffsets.push_back(offsets[loop]);
      resultSizes.push_back(sizes[loop]);
      continue;
    }
    resultOffsets.push_back(b.getIndexAttr(0));
    resultSizes.push_back(result == getOutput() ? getDimSize(b, getLoc(), getValue(), getValueDims(), dim)
                                                : OpFoldResult(b.getIndexAttr(extent)));
  }
  return success();
}
