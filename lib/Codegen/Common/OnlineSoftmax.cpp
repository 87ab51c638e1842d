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

/// Whether the rounding error of an exponent may be a factor of two or more.
static Value isLarge(KernelEmitter &e, Value base) {
  double limit = e.type.isF64() ? 0x1p53 : 0x1p24;
  return compare(e, arith::CmpFPredicate::OGT, math::AbsFOp::create(e.b, e.loc, base), e.floatLike(base, limit));
}

Exponent saccade::emitExponent(KernelEmitter &e, const RowMax &row, Value tileMax, bool shiftsNewest) {
  Exponent exponent;
  Value zero = e.floatLike(tileMax, 0.0);
  Value isShifted = isLarge(e, row.base);
  Value isNewest = compare(e, arith::CmpFPredicate::OGE, row.scaled, row.max);
  exponent.isShifted = shiftsNewest ? arith::OrIOp::create(e.b, e.loc, isShifted, isNewest).getResult() : isShifted;
  exponent.shift = e.select(exponent.isShifted, e.zeroIfMinusInfinity(tileMax), zero);
  Value distance = e.subf(row.scaled, row.max);
  if (row.isNatural)
    distance = e.mulf(distance, e.floatLike(distance, std::numbers::log2e));
  distance = e.select(isNewest, zero, distance);
  exponent.offset = e.select(exponent.isShifted, distance, arith::NegFOp::create(e.b, e.loc, row.base));
  return exponent;
}

Value saccade::emitFactor(KernelEmitter &e, Value max, Value base, bool isNatural) {
  Value difference = e.subf(max, base);
  return e.exp2(isNatural ? e.mulf(difference, e.floatLike(max, std::numbers::log2e)) : difference);
}

NaturalMax saccade::emitNaturalMax(KernelEmitter &e, Value tileMax, Value before) {
  NaturalMax row;
  row.max = e.maxf(tileMax, before);
  row.base = e.zeroIfMinusInfinity(row.max);
  row.factor = emitFactor(e, before, row.base, /*isNatural=*/true);
  return row;
}

Value saccade::emitRoundedFactor(KernelEmitter &e, Value before, Value max) {
  Value newest = e.zeroIfMinusInfinity(max), toBase2 = e.floatLike(max, std::numbers::log2e);
  Value base = e.mulf(newest, toBase2), rounded = e.subf(e.mulf(before, toBase2), base);
  return e.exp2(e.select(isLarge(e, base), e.mulf(e.subf(before, newest), toBase2), rounded));
}

RowMax saccade::emitRoundedNaturalMax(KernelEmitter &e, Value tileMax, Value before) {
  RowMax row;
  row.isNatural = true;
  row.scaled = tileMax;
  row.max = e.maxf(tileMax, before);
  row.base = e.mulf(e.zeroIfMinusInfinity(row.max), e.floatLike(row.max, std::numbers::log2e));
  row.factor = emitRoundedFactor(e, before, row.max);
  return row;
}

Value saccade::emitRoundingError(KernelEmitter &e, Value max) {
  Value newest = e.zeroIfMinusInfinity(max), toBase2 = e.floatLike(max, std::numbers::log2e);
  Value base = e.mulf(newest, toBase2);
  Value error = math::FmaOp::create(e.b, e.loc, arith::NegFOp::create(e.b, e.loc, newest), toBase2, base);
  return e.select(isLarge(e, base), e.floatLike(error, 0.0), error);
}

MergedRow saccade::mergeRow(KernelEmitter &e, Value max, Value sum, Value otherMax, Value otherSum, bool isNatural) {
  MergedRow merged;
  merged.max = e.maxf(max, otherMax);
  Value base = e.zeroIfMinusInfinity(merged.max);
  merged.stateFactor = emitFactor(e, max, base, isNatural);
  merged.otherFactor = emitFactor(e, otherMax, base, isNatural);
  merged.sum = e.addf(e.mulf(sum, merged.stateFactor), e.mulf(otherSum, merged.otherFactor));
  return merged;
}

MergedRow saccade::mergeSticks(KernelEmitter &e, Value max, Value sum, Value otherMax, Value otherSum) {
  return {e.addf(max, otherMax), e.addf(sum, otherSum), e.exp2(otherMax), e.floatLike(max, 1.0)};
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

LogSumExp saccade::emitNaturalLogSumExp(KernelEmitter &e, Value max, Value log) {
  Value base = e.zeroIfMinusInfinity(max), sum = e.addf(base, log);
  Value addend = e.subf(sum, base);
  Value low = e.addf(e.subf(base, e.subf(sum, addend)), e.subf(log, addend));
  // An infinite sum is exact.
  double infinity = std::numeric_limits<double>::infinity();
  Value isInfinite =
      compare(e, arith::CmpFPredicate::OEQ, math::AbsFOp::create(e.b, e.loc, sum), e.floatLike(sum, infinity));
  return {sum, e.select(isInfinite, e.floatLike(low, 0.0), low)};
}
