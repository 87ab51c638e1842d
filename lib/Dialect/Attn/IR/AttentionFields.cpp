//===- AttentionFields.cpp - What an attn.attention consists of ---------------===//
#include "saccade/Dialect/Attn/IR/AttentionFields.h"

using namespace mlir;
using namespace saccade::attn;

AttentionFields::AttentionFields(AttentionOp op, ArrayRef<Type> types)
    : query(op.getQuery()), key(op.getKey()), value(op.getValue()), captures(op.getCaptures()), qLen(op.getQLen()),
      kvLen(op.getKvLen()), cuSeqlensQ(op.getCuSeqlensQ()), cuSeqlensK(op.getCuSeqlensK()),
      scaleValue(op.getScaleValue()), at(op.getAt()), sink(op.getSink()), queryDims(op.getQueryDims()),
      keyDims(op.getKeyDims()), valueDims(op.getValueDims()), outputDims(op.getOutputDims()), scale(op.getScaleAttr()),
      qkType(op.getQkTypeAttr()), isPointwise(op.getPointwise()), isStickBreaking(op.getStickBreaking()),
      schedule(op.getScheduleAttr()), splitKV(op.getSplitKvAttr()), tallies(types.take_back(op.getTallies().size())) {
  auto typeOf = [&](Value result) { return result ? types[cast<OpResult>(result).getResultNumber()] : Type(); };
  output = typeOf(op.getOutput()), lse = typeOf(op.getLse()), lseLow = typeOf(op.getLseLow());
  rowMax = typeOf(op.getRowMax()), argmax = typeOf(op.getArgmax());
}

AttentionOp AttentionFields::create(OpBuilder &b, Location loc) const {
  return AttentionOp::create(b, loc, output, lse, lseLow, rowMax, argmax, tallies, query, key, value, captures, qLen,
                             kvLen, cuSeqlensQ, cuSeqlensK, scaleValue, at, sink, queryDims, keyDims, valueDims,
                             outputDims, scale, qkType, isPointwise, isStickBreaking, schedule, splitKV,
                             tallies.size());
}
