//===- Sequences.cpp - The sequences of attention -----------------------------===//
//
// Emits the bounds of a sequence and the op on it. Dense operands have one sequence for each batch.
//
//===----------------------------------------------------------------------===//
#include "Sequences.h"
#include "TableEmitter.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "saccade/Dialect/Attn/IR/AttentionFields.h"
#include "saccade/Dialect/Attn/IR/Position.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

Sequences::Sequences(OpBuilder &b, ScoringOpInterface op, bool onDevice) : op(op) {
  TableEmitter e{b, op.getLoc()};
  sequenceCount = getValueOrCreateConstantIndexOp(b, e.loc, getBatches(b, op, Role::Query));
  bool hasPaddingRows = op.getCuSeqlensQ() != nullptr;
  count = hasPaddingRows ? e.add(sequenceCount, e.index(1)) : sequenceCount;
  if (op.getCuSeqlensQ())
    queryStarts = normalize(b, Role::Query, hasPaddingRows, onDevice);
  if (op.getCuSeqlensK())
    keyStarts = normalize(b, Role::Key, hasPaddingRows, onDevice);
}

/// The extent of the queries or keys of a tensor.
Value Sequences::extent(OpBuilder &b, Role role) {
  bool isQuery = role == Role::Query;
  OpFoldResult size = getDimSize(b, op.getLoc(), isQuery ? op.getQuery() : op.getKey(),
                                 isQuery ? op.getQueryDims() : op.getKeyDims(), Dim::Seq);
  return getValueOrCreateConstantIndexOp(b, op.getLoc(), size);
}

Value Sequences::total(OpBuilder &b, Role role) {
  TableEmitter e{b, op.getLoc()};
  return op.getCuSeqlens(role) ? extent(b, role) : e.mul(count, extent(b, role));
}

Value saccade::emitStarts(OpBuilder &b, Location loc, Value offsets, Value count, Value extent, bool onDevice,
                          Padding padding) {
  TableEmitter e{b, loc};
  Value zero = e.index(0), one = e.index(1), end = e.add(count, one);
  Value size = padding == Padding::None ? end : e.add(end, one);
  return e.fillTables(size, onDevice, [&](ValueRange tables) -> SmallVector<Value> {
    Value starts = e.set(tables[0], zero, zero);
    SmallVector<Value> result =
        e.loop(one, end, 1, {starts, zero}, [&](Value i, ValueRange carried) -> SmallVector<Value> {
          Value offset = e.min(e.max(e.get(offsets, i), carried[1]), extent);
          return {e.set(carried[0], i, offset), offset};
        });
    if (padding == Padding::None)
      return {result[0]};
    return {e.set(result[0], end, padding == Padding::Rest ? extent : result[1])};
  })[0];
}

/// Returns the offsets of `role`. With `hasPaddingRows` there is one additional sequence of the remaining queries,
/// without keys.
Value Sequences::normalize(OpBuilder &b, Role role, bool hasPaddingRows, bool onDevice) {
  Padding padding = !hasPaddingRows ? Padding::None : role == Role::Query ? Padding::Rest : Padding::Empty;
  return emitStarts(b, op.getLoc(), op.getCuSeqlens(role), sequenceCount, extent(b, role), onDevice, padding);
}

Value Sequences::start(OpBuilder &b, Role role, Value number) {
  TableEmitter e{b, op.getLoc()};
  Value starts = role == Role::Query ? queryStarts : keyStarts;
  return starts ? e.get(starts, number) : e.index(0);
}

Value Sequences::length(OpBuilder &b, Role role, Value number) {
  TableEmitter e{b, op.getLoc()};
  bool isQuery = role == Role::Query;
  if (Value starts = isQuery ? queryStarts : keyStarts)
    return e.sub(e.get(starts, e.add(number, e.index(1))), e.get(starts, number));
  // The padding rows have no keys.
  return queryStarts ? arith::SelectOp::create(b, e.loc, e.isEqual(number, sequenceCount), e.index(0), extent(b, role))
                     : extent(b, role);
}

/// `q_len` or `kv_len` of a sequence; `rest` for the padding rows.
Value Sequences::lengthOperand(OpBuilder &b, Value length, Value number, Value rest) {
  TableEmitter e{b, op.getLoc()};
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
  auto op = cast<AttentionOp>(this->op.getOperation());
  TableEmitter e{b, op.getLoc()};
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
  SmallVector<Type> types;
  for (Value result : op->getResults()) {
    auto type = cast<RankedTensorType>(result.getType());
    SmallVector<int64_t> shape(type.getShape());
    for (auto [dim, extent] : llvm::zip_equal(op.getResultDims(result), shape))
      extent = dim == Dim::Batch ? 1 : dim == Dim::Seq && queryStarts ? ShapedType::kDynamic : extent;
    types.push_back(type.clone(shape));
  }
  AttentionFields fields(op, types);
  fields.query = slice(op.getQuery(), op.getQueryDims(), Role::Query);
  fields.key = slice(op.getKey(), op.getKeyDims(), Role::Key);
  fields.value = slice(op.getValue(), op.getValueDims(), Role::Key);
  fields.cuSeqlensQ = fields.cuSeqlensK = Value();
  Position at = emitPosition(b, e.loc, op);
  at.batch = e.add(at.batch, number);
  // No padding row is valid: its length ends at the first position.
  fields.qLen = lengthOperand(b, op.getQLen(), number, at.query);
  if (queryStarts && (!op.getQLen() || op.getQLen().getType().isIndex())) {
    Value all = fields.qLen ? fields.qLen : e.add(at.query, queries);
    fields.qLen = arith::SelectOp::create(b, e.loc, e.isEqual(number, sequenceCount), at.query, all);
  }
  fields.kvLen = lengthOperand(b, op.getKvLen(), number, /*rest=*/at.key);
  fields.at = at.inOrder();
  AttentionOp sequence = fields.create(b, e.loc);
  // Properties proved for all positions hold for the positions of one sequence.
  sequence->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  cloneRegions(op, sequence);
  return sequence;
}

Value saccade::emitEnd(IndexEmitter &e, Value length, Value number, Value first, Value extent) {
  if (!length)
    return e.add(first, extent);
  if (isa<RankedTensorType>(length.getType()))
    length = tensor::ExtractOp::create(e.b, e.loc, length, number);
  return e.asIndex(length);
}
