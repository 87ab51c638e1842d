//===- WorkList.cpp - The work items of ragged attention ----------------------===//
//
// Emits serial code before the parallel loop. Its time and memory are linear in the number of sequences and items.
//
//===----------------------------------------------------------------------===//
#include "WorkList.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "saccade/Support/IndexEmitter.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

namespace {

/// Index arithmetic and 1-D tensors of indices.
struct Emitter : IndexEmitter {
  using IndexEmitter::IndexEmitter;

  Value table(Value size) {
    return tensor::EmptyOp::create(b, loc, ArrayRef<OpFoldResult>{getAsOpFoldResult(size)}, b.getIndexType());
  }
  Value get(Value table, Value i) {
    Value number = tensor::ExtractOp::create(b, loc, table, i);
    return number.getType().isIndex() ? number : arith::IndexCastOp::create(b, loc, b.getIndexType(), number);
  }
  Value set(Value table, Value i, Value number) { return tensor::InsertOp::create(b, loc, number, table, i); }
};

} // namespace

//===----------------------------------------------------------------------===//
// Sequences
//===----------------------------------------------------------------------===//

Sequences::Sequences(OpBuilder &b, AttentionOp op) : op(op) {
  Emitter e{b, op.getLoc()};
  sequenceCount = getValueOrCreateConstantIndexOp(b, e.loc, op.getBatches(b, Role::Query));
  bool hasPaddingRows = op.getCuSeqlensQ() != nullptr;
  count = hasPaddingRows ? e.add(sequenceCount, e.index(1)) : sequenceCount;
  auto total = [&](Value operand, DimsAttr dims) {
    return getValueOrCreateConstantIndexOp(b, e.loc, getDimSize(b, e.loc, operand, dims, Dim::Seq));
  };
  if (op.getCuSeqlensQ())
    queryStarts = normalize(b, Role::Query, total(op.getQuery(), op.getQueryDims()), hasPaddingRows);
  if (op.getCuSeqlensK())
    keyStarts = normalize(b, Role::Key, total(op.getKey(), op.getKeyDims()), hasPaddingRows);
}

/// Returns the offsets of `role`, clamped to [0, total] and ascending from 0. With `hasPaddingRows` there is one
/// additional sequence of the remaining queries, without keys.
Value Sequences::normalize(OpBuilder &b, Role role, Value total, bool hasPaddingRows) {
  Emitter e{b, op.getLoc()};
  Value offsets = op.getCuSeqlens(role);
  Value zero = e.index(0), one = e.index(1), end = e.add(sequenceCount, one);
  Value starts = e.set(e.table(e.add(count, one)), zero, zero);
  SmallVector<Value> result =
      e.loop(one, end, 1, {starts, zero}, [&](Value i, ValueRange carried) -> SmallVector<Value> {
        Value offset = e.min(e.max(e.get(offsets, i), carried[1]), total);
        return {e.set(carried[0], i, offset), offset};
      });
  if (!hasPaddingRows)
    return result[0];
  return e.set(result[0], end, role == Role::Query ? total : result[1]);
}

Value Sequences::start(OpBuilder &b, Role role, Value number) {
  Emitter e{b, op.getLoc()};
  Value starts = role == Role::Query ? queryStarts : keyStarts;
  return starts ? e.get(starts, number) : e.index(0);
}

Value Sequences::length(OpBuilder &b, Role role, Value number) {
  Emitter e{b, op.getLoc()};
  bool isQuery = role == Role::Query;
  if (Value starts = isQuery ? queryStarts : keyStarts)
    return e.sub(e.get(starts, e.add(number, e.index(1))), e.get(starts, number));
  Value extent = getValueOrCreateConstantIndexOp(b, e.loc,
                                                 getDimSize(b, e.loc, isQuery ? op.getQuery() : op.getKey(),
                                                            isQuery ? op.getQueryDims() : op.getKeyDims(), Dim::Seq));
  // The padding rows have no keys.
  return queryStarts ? arith::SelectOp::create(b, e.loc, e.isEqual(number, sequenceCount), e.index(0), extent) : extent;
}

/// `q_len` or `kv_len` of a sequence; `rest` for the padding rows.
Value Sequences::lengthOperand(OpBuilder &b, Value length, Value number, Value rest) {
  Emitter e{b, op.getLoc()};
  if (!length || !isa<RankedTensorType>(length.getType()))
    return length;
  if (!queryStarts)
    return e.get(length, number);
  auto branch =
      scf::IfOp::create(b, e.loc, b.getIndexType(), e.isEqual(number, sequenceCount), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, e.loc, rest);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, e.loc, e.get(length, number));
  return branch.getResult(0);
}

AttentionOp Sequences::extract(OpBuilder &b, Value number) {
  Emitter e{b, op.getLoc()};
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  Value queries = length(b, Role::Query, number), keys = length(b, Role::Key, number);
  auto slice = [&](Value operand, DimsAttr dims, Role role) -> Value {
    bool isRagged = op.getCuSeqlens(role) != nullptr;
    SmallVector<OpFoldResult> offsets, sizes, strides(dims.size(), one);
    for (Dim dim : dims.getDims()) {
      bool isWhole = dim == Dim::Head || dim == Dim::Depth || (dim == Dim::Seq && !isRagged && role == Role::Query);
      offsets.push_back(isWhole             ? zero
                        : dim == Dim::Batch ? getAsOpFoldResult(number)
                                            : getAsOpFoldResult(start(b, role, number)));
      sizes.push_back(isWhole             ? getDimSize(b, e.loc, operand, dims, dim)
                      : dim == Dim::Batch ? one
                                          : getAsOpFoldResult(role == Role::Query ? queries : keys));
      // The padding rows have no batch of keys; use an empty slice of batch 0.
      if (dim == Dim::Batch && queryStarts)
        offsets.back() =
            arith::SelectOp::create(b, e.loc, e.isEqual(number, sequenceCount), e.index(0), number).getResult();
    }
    return tensor::ExtractSliceOp::create(b, e.loc, operand, offsets, sizes, strides);
  };
  Value query = slice(op.getQuery(), op.getQueryDims(), Role::Query);
  Value key = slice(op.getKey(), op.getKeyDims(), Role::Key);
  Value value = slice(op.getValue(), op.getValueDims(), Role::Key);

  SmallVector<Value> at(4, e.index(0));
  if (!op.getAt().empty())
    at = SmallVector<Value>(op.getAt());
  at[0] = e.add(at[0], number);
  // No padding row is valid: its length ends at the first position.
  Value queryLength = lengthOperand(b, op.getQLen(), number, at[2]);
  if (queryStarts && (!op.getQLen() || op.getQLen().getType().isIndex())) {
    Value all = queryLength ? queryLength : e.add(at[2], queries);
    queryLength = arith::SelectOp::create(b, e.loc, e.isEqual(number, sequenceCount), at[2], all);
  }
  SmallVector<Type> types;
  for (Value result : op->getResults()) {
    auto type = cast<RankedTensorType>(result.getType());
    SmallVector<int64_t> shape(type.getShape());
    for (auto [dim, extent] : llvm::zip_equal(op.getResultDims(result), shape))
      extent = dim == Dim::Batch ? 1 : dim == Dim::Seq && queryStarts ? ShapedType::kDynamic : extent;
    types.push_back(type.clone(shape));
  }
  auto typeOf = [&](Value result) { return result ? types[cast<OpResult>(result).getResultNumber()] : Type(); };
  auto sequence =
      AttentionOp::create(b, e.loc, typeOf(op.getOutput()), typeOf(op.getLse()), typeOf(op.getRowMax()),
                          typeOf(op.getArgmax()), ArrayRef(types).take_back(op.getTallies().size()), query, key, value,
                          op.getCaptures(), queryLength, lengthOperand(b, op.getKvLen(), number, /*rest=*/at[3]),
                          /*cu_seqlens_q=*/Value(), /*cu_seqlens_k=*/Value(), op.getScaleValue(), at, op.getSink(),
                          op.getQueryDimsAttr(), op.getKeyDimsAttr(), op.getValueDimsAttr(), op.getOutputDimsAttr(),
                          op.getScaleAttr(), op.getScheduleAttr(), op.getSplitKvAttr(), op.getTallyRegions().size());
  // Properties proved for all positions hold for the positions of one sequence.
  sequence->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  cloneRegions(op, sequence);
  return sequence;
}

//===----------------------------------------------------------------------===//
// Work list
//===----------------------------------------------------------------------===//

WorkList saccade::listItems(OpBuilder &b, Location loc, Value count, function_ref<Value(OpBuilder &, Value)> partsOf,
                            function_ref<Value(OpBuilder &, Value)> costOf) {
  Emitter e{b, loc};
  // Counting sort by the number of leading zeros of the cost.
  constexpr int64_t buckets = 65;
  Value zero = e.index(0), bucketCount = e.index(buckets);
  auto bucketOf = [&](Value i) -> Value {
    Value cost = arith::IndexCastOp::create(b, loc, b.getI64Type(), costOf(b, i));
    Value zeros = math::CountLeadingZerosOp::create(b, loc, cost);
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), zeros);
  };
  Value places = e.table(bucketCount);
  places = e.loop(zero, bucketCount, 1, places,
                  [&](Value i, ValueRange carried) -> SmallVector<Value> { return {e.set(carried[0], i, zero)}; })[0];
  places = e.loop(zero, count, 1, places, [&](Value i, ValueRange carried) -> SmallVector<Value> {
    Value bucket = bucketOf(i);
    return {e.set(carried[0], bucket, e.add(e.get(carried[0], bucket), partsOf(b, i)))};
  })[0];
  SmallVector<Value> prefixSums =
      e.loop(zero, bucketCount, 1, {places, zero}, [&](Value i, ValueRange carried) -> SmallVector<Value> {
        Value here = e.get(carried[0], i);
        return {e.set(carried[0], i, carried[1]), e.add(carried[1], here)};
      });
  WorkList list;
  list.count = prefixSums[1];
  SmallVector<Value> filled =
      e.loop(zero, count, 1, {prefixSums[0], e.table(count), e.table(list.count)},
             [&](Value i, ValueRange carried) -> SmallVector<Value> {
               Value bucket = bucketOf(i), first = e.get(carried[0], bucket), end = e.add(first, partsOf(b, i));
               Value sequences =
                   e.loop(first, end, 1, carried[2], [&](Value item, ValueRange inner) -> SmallVector<Value> {
                     return {e.set(inner[0], item, i)};
                   })[0];
               return {e.set(carried[0], bucket, end), e.set(carried[1], i, first), sequences};
             });
  list.itemOffsets = filled[1];
  list.sequences = filled[2];
  return list;
}
