//===- OnlineSoftmax.cpp - Arithmetic of the online softmax -------------------===//
#include "OnlineSoftmax.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "saccade/Dialect/Attn/Analysis/Stability.h"
#include <limits>
#include <numbers>

using namespace mlir;
using namespace saccade;

static Value compare(KernelEmitter &e, arith::CmpFPredicate predicate, Value x, Value y) {
  return arith::CmpFOp::create(e.b, e.loc, predicate, x, y);
}

/// x · factor, with the largest finite numbers in place of overflow.
static Value multiplySaturating(KernelEmitter &e, Value x, Value factor) {
  Value product = e.mulf(x, factor);
  auto isInfinite = [&](Value of) {
    double infinity = std::numeric_limits<double>::infinity();
    return compare(e, arith::CmpFPredicate::OEQ, math::AbsFOp::create(e.b, e.loc, of), e.floatLike(of, infinity));
  };
  double largest = e.type.isF64() ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  Value isNegative = compare(e, arith::CmpFPredicate::OLT, x, e.floatLike(x, 0.0));
  Value bound = e.select(isNegative, e.floatLike(x, -largest), e.floatLike(x, largest));
  return e.select(isInfinite(x), product, e.select(isInfinite(product), bound, product));
}

MaxRange saccade::getMaxRange(attn::AccumulateOp op) {
  if (attn::getFiniteMax(op) != attn::FiniteMax::Never)
    return MaxRange::Finite;
  // A score region may compute any number. Scores without one are products of the operands.
  return op.getScore().empty() ? MaxRange::Any : MaxRange::Overflowing;
}

RowMax saccade::emitRowMax(KernelEmitter &e, Value tileMax, Value before, Value toBase2, MaxRange range) {
  RowMax row;
  row.scaled = range == MaxRange::Overflowing ? multiplySaturating(e, tileMax, toBase2) : e.mulf(tileMax, toBase2);
  row.max = e.maxf(row.scaled, before);
  row.base = range == MaxRange::Finite ? row.max : e.zeroIfMinusInfinity(row.max);
  row.factor = e.exp2(e.subf(before, row.base));
  return row;
}

Exponent saccade::emitExponent(KernelEmitter &e, const RowMax &row, Value tileMax, bool shiftsNewest) {
  Exponent exponent;
  Value zero = e.floatLike(tileMax, 0.0), size = math::AbsFOp::create(e.b, e.loc, row.base);
  Value isShifted = compare(e, arith::CmpFPredicate::OGT, size, e.floatLike(size, e.type.isF64() ? 0x1p53 : 0x1p24));
  Value isNewest = compare(e, arith::CmpFPredicate::OGE, row.scaled, row.max);
  exponent.isShifted = shiftsNewest ? arith::OrIOp::create(e.b, e.loc, isShifted, isNewest).getResult() : isShifted;
  exponent.shift = e.select(exponent.isShifted, e.zeroIfMinusInfinity(tileMax), zero);
  Value distance = e.select(isNewest, zero, e.subf(row.scaled, row.max));
  exponent.offset = e.select(exponent.isShifted, distance, arith::NegFOp::create(e.b, e.loc, row.base));
  return exponent;
}

MergedRow saccade::mergeRow(KernelEmitter &e, Value max, Value sum, Value otherMax, Value otherSum) {
  MergedRow merged;
  merged.max = e.maxf(max, otherMax);
  Value base = e.zeroIfMinusInfinity(merged.max);
  merged.stateFactor = e.exp2(e.subf(max, base));
  merged.otherFactor = e.exp2(e.subf(otherMax, base));
  merged.sum = e.addf(e.mulf(sum, merged.stateFactor), e.mulf(otherSum, merged.otherFactor));
  return merged;
}

RowResult saccade::finalizeRow(KernelEmitter &e, Value sum) {
  Value isEmpty = compare(e, arith::CmpFPredicate::OEQ, sum, e.floatLike(sum, 0.0));
  return {isEmpty, arith::DivFOp::create(e.b, e.loc, e.floatLike(sum, 1.0), sum)};
}

Value saccade::normalize(KernelEmitter &e, const RowResult &row, Value x) {
  Value inverse = row.inverse;
  if (x.getType() != inverse.getType())
    inverse = vector::BroadcastOp::create(e.b, e.loc, x.getType(), inverse);
  return e.select(row.isEmpty, e.floatLike(x, 0.0), e.mulf(x, inverse));
}

Value saccade::emitLogSumExp(KernelEmitter &e, Value max, Value sum) {
  // For an empty row the logarithm is −∞, so the result does not depend on the maximum.
  Value log = e.log(sum);
  return e.addf(e.mulf(e.zeroIfMinusInfinity(max), e.floatLike(max, std::numbers::ln2)), log);
}
