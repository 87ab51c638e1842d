//===- LengthChecks.cpp - Run-time checks of q_len and kv_len -----------------===//
//
// Emits the checks that lengths of attention are within the operand. They are part of the shape function, so a call
// with an invalid length is refused before any kernel runs.
//
//===----------------------------------------------------------------------===//
#include "ShapeChecks.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "saccade/Support/IndexEmitter.h"

using namespace mlir;
using namespace saccade::attn;

Value ShapeChecks::findLengthArgument(Value length) {
  while (isa_and_nonnull<tensor::CastOp, arith::IndexCastOp>(length ? length.getDefiningOp() : nullptr))
    length = length.getDefiningOp()->getOperand(0);
  if (!isa_and_nonnull<BlockArgument>(length) || (isa<RankedTensorType>(length.getType()) && !mayReadElements))
    return {};
  return length;
}

Value ShapeChecks::numberOf(Value numbers, Value sequence) {
  bool isTensor = isa<RankedTensorType>(numbers.getType());
  return saccade::IndexEmitter(builder, loc)
      .asIndex(isTensor ? tensor::ExtractOp::create(builder, loc, numbers, sequence).getResult() : numbers);
}

/// Applies to arguments only, tensors if the host can read their elements; generated code clamps other lengths. With
/// `at` the operand is a part of a longer sequence, so lengths have no upper bound. A tensor of lengths of
/// ragged sequences is compared with the lengths of the sequences if the offsets are arguments too.
void ShapeChecks::addForLength(ScoringOpInterface op, Role role) {
  bool isQuery = role == Role::Query;
  Value length = findLengthArgument(isQuery ? op.getQLen() : op.getKvLen());
  if (!length)
    return;
  bool isTensor = isa<RankedTensorType>(length.getType());
  Value rows = materialize(getDimSize(builder, loc, isQuery ? op.getQuery() : op.getKey(),
                                      isQuery ? op.getQueryDims() : op.getKeyDims(), Dim::Seq));
  Value minimum = zero, maximum = zero;
  if (isTensor) {
    Value one = arith::ConstantIndexOp::create(builder, loc, 1), batches = materialize(extent(length, 0));
    Value offsets = cuSeqlensArgument(op, role);
    if (offsets) // Another number of sequences is refused elsewhere.
      batches = arith::MinSIOp::create(builder, loc, batches,
                                       arith::SubIOp::create(builder, loc, materialize(extent(offsets, 0)), one));
    // The loop carries the least length, and the length that exceeds the rows of its sequence the most, with these
    // rows.
    auto loop = scf::ForOp::create(builder, loc, zero, batches, one, ValueRange{zero, zero, offsets ? zero : rows},
                                   [&](OpBuilder &, Location, Value i, ValueRange carried) {
                                     OpBuilder::InsertionGuard guard(builder);
                                     builder.setInsertionPointToEnd(i.getParentBlock());
                                     Value element = numberOf(length, i);
                                     Value lower = arith::MinSIOp::create(builder, loc, carried[0], element),
                                           own = rows;
                                     if (offsets) {
                                       Value next = arith::AddIOp::create(builder, loc, i, one);
                                       Value begin = numberOf(offsets, i);
                                       Value end = numberOf(offsets, next);
                                       own = arith::SubIOp::create(builder, loc, end, begin);
                                     }
                                     Value excess = arith::SubIOp::create(builder, loc, element, own);
                                     Value most = arith::SubIOp::create(builder, loc, carried[1], carried[2]);
                                     Value isMore =
                                         arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sgt, excess, most);
                                     Value upper = arith::SelectOp::create(builder, loc, isMore, element, carried[1]);
                                     Value bound = arith::SelectOp::create(builder, loc, isMore, own, carried[2]);
                                     scf::YieldOp::create(builder, loc, ValueRange{lower, upper, bound});
                                   });
    minimum = loop.getResult(0);
    maximum = loop.getResult(1);
    rows = loop.getResult(2);
  } else {
    minimum = maximum = numberOf(length, zero);
  }
  StringRef clause = isQuery ? "q_len" : "kv_len";
  Value isValid = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sge, minimum, zero);
  require(isValid, minimum, zero, clause + " is negative", "at least ");
  if (!op.getAt().empty())
    return;
  Value isWithin = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sle, maximum, rows);
  require(isWithin, maximum, rows, clause + " exceeds the length of " + (isQuery ? "query" : "key"), "at most ");
}
