//===- MaskTransfer.cpp - Transfer functions of integers in masks -------------===//
//
// A transfer function for each kind of op. Linear ops keep affine forms. All other ops use the intervals of their
// operands and create atoms.
//
//===----------------------------------------------------------------------===//
#include "MaskEvaluator.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace saccade::attn;

AffineValue MaskEvaluator::multiply(arith::MulIOp op) {
  for (auto [value, by] : {std::pair(op.getLhs(), op.getRhs()), std::pair(op.getRhs(), op.getLhs())}) {
    AffineValue factor = integer(by);
    std::optional<int64_t> constant = factor.form.constant.getConstant();
    bool isFactor = factor.isValid.isConstant(1) && factor.form.isPoint() && constant;
    if (isFactor && AffineSpace::isFactor(*constant))
      return fitted(space.combine(integer(value), *constant, {}, 0), op.getType());
  }
  Interval x = range(op.getLhs()), y = range(op.getRhs());
  return product(x, y, op.getType());
}

AffineValue MaskEvaluator::product(Interval x, Interval y, Type type) {
  constexpr unsigned bits = 30;
  StagedInt isSmall = 1;
  for (StagedInt number : {x.low, x.high, y.low, y.high})
    isSmall = both(isSmall, space.isWithin(number, bits));
  if (isSmall.isConstant(0))
    return bounded({}, type, 0);
  StagedInt low, high;
  bool isFirst = true;
  for (StagedInt lhs : {x.low, x.high})
    for (StagedInt rhs : {y.low, y.high}) {
      StagedInt corner = b.mul(lhs.withBits(bits), rhs.withBits(bits));
      low = isFirst ? corner : b.min(low, corner);
      high = isFirst ? corner : b.max(high, corner);
      isFirst = false;
    }
  Interval all = rangeOf(type);
  StagedInt fits = both(b.isAtMost(all.low, low), b.isAtMost(high, all.high));
  return bounded({low, high}, type, both(isSmall, fits));
}

AffineValue MaskEvaluator::divide(Value dividend, Value divisor, Type type, Rounding rounding, bool isUnsigned) {
  Interval x = range(dividend), y = range(divisor);
  StagedInt isKnown = isAtLeast(y.low, 1);
  if (isUnsigned)
    isKnown = both(isKnown, isAtLeast(x.low, 0));
  if (isKnown.isConstant(0))
    return bounded({}, type, 0);
  AffineValue of = integer(dividend);
  if (y.isPoint() && rounding == Rounding::Down && !of.isValid.isConstant(0))
    return {space.quotient(of.form, y.low), both(of.isValid, isKnown)};
  auto divided = [&](StagedInt number, StagedInt by) {
    if (rounding == Rounding::ToZero)
      return b.truncDiv(number, by);
    if (rounding == Rounding::Down)
      return b.floorDiv(number, by);
    return b.sub(0, b.floorDiv(b.sub(0, number), by));
  };
  // Rounding up negates the dividend, which overflows for the minimum.
  if (rounding == Rounding::Up)
    isKnown = both(isKnown, b.isLess(INT64_MIN, x.low));
  // Quotients of negative dividends are largest for the largest divisor.
  StagedInt low = b.min(divided(x.low, y.low), divided(x.low, y.high));
  StagedInt high = b.max(divided(x.high, y.low), divided(x.high, y.high));
  return bounded({low, high}, type, isKnown);
}

/// x − ⌊x / divisor⌋ · divisor, which is in [0, divisor) for a positive divisor even if x is not valid.
AffineValue MaskEvaluator::remainder(const AffineValue &x, StagedInt divisor, Type type) {
  StagedInt isKnown = isAtLeast(divisor, 1);
  if (x.isValid.isConstant(0) || isKnown.isConstant(0))
    return bounded({0, b.sub(divisor, 1)}, type, isKnown);
  return {space.remainder(x.form, divisor), both(x.isValid, isKnown)};
}

AffineValue MaskEvaluator::remainder(Value dividend, Value divisor, Type type, bool isUnsigned) {
  Interval x = range(dividend), y = range(divisor);
  StagedInt isPositive = isAtLeast(y.low, 1), isNatural = isAtLeast(x.low, 0);
  if (y.isPoint() && isNatural.isConstant(1))
    return remainder(integer(dividend), y.low, type);
  // The remainder has the sign of the dividend; its magnitude is less than the divisor and at most the dividend's.
  StagedInt max = b.sub(y.high, 1);
  Interval bounds = {b.max(b.min(x.low, 0), b.sub(0, max)), b.min(b.max(x.high, 0), max)};
  if (y.isPoint() && !isNatural.isConstant(0)) {
    AffineValue natural = remainder(integer(dividend), y.low, type);
    Interval exact = rangeOf(natural, type);
    bounds = {b.select(isNatural, exact.low, bounds.low), b.select(isNatural, exact.high, bounds.high)};
  }
  return bounded(bounds, type, isUnsigned ? both(isPositive, isNatural) : isPositive);
}

/// x − (x / y) · y, the trace of Python's %.
std::optional<AffineValue> MaskEvaluator::writtenRemainder(arith::SubIOp op) {
  auto product = op.getRhs().getDefiningOp<arith::MulIOp>();
  if (!product)
    return std::nullopt;
  for (auto [whole, divisor] :
       {std::pair(product.getLhs(), product.getRhs()), std::pair(product.getRhs(), product.getLhs())}) {
    auto quotient = whole.getDefiningOp<arith::FloorDivSIOp>();
    if (!quotient || quotient.getLhs() != op.getLhs() || quotient.getRhs() != divisor)
      continue;
    Interval y = range(divisor);
    if (y.isPoint())
      return remainder(integer(op.getLhs()), y.low, op.getType());
  }
  return std::nullopt;
}

AffineValue MaskEvaluator::extremum(Operation *op, bool isMax, bool isUnsigned) {
  Type type = op->getResult(0).getType();
  Interval x = range(op->getOperand(0)), y = range(op->getOperand(1));
  StagedInt isKnown = 1;
  if (isUnsigned)
    isKnown = both(isAtLeast(x.low, 0), isAtLeast(y.low, 0));
  auto pick = [&](StagedInt lhs, StagedInt rhs) { return isMax ? b.max(lhs, rhs) : b.min(lhs, rhs); };
  Interval bounds = {pick(x.low, y.low), pick(x.high, y.high)};
  // max(x, −x) is the trace of an absolute value.
  AffineValue lhs = integer(op->getOperand(0)), rhs = integer(op->getOperand(1));
  AffineValue sum = space.combine(lhs, 1, rhs, 1);
  if (isMax && sum.form.isPoint() && sum.form.constant.isConstant(0) && !sum.isValid.isConstant(0))
    bounds.low = b.max(bounds.low, b.select(sum.isValid, 0, INT64_MIN));
  return bounded(bounds, type, isKnown);
}

AffineValue MaskEvaluator::bitwise(Operation *op) {
  Type type = op->getResult(0).getType();
  Value x = op->getOperand(0), y = op->getOperand(1);
  // The low bits of a number are its remainder by a power of two, for either sign.
  if (isa<arith::AndIOp>(op))
    for (auto [value, mask] : {std::pair(x, y), std::pair(y, x)}) {
      std::optional<int64_t> ones = integer(mask).form.constant.getConstant();
      if (integer(mask).form.isPoint() && integer(mask).isValid.isConstant(1) && ones && *ones >= 0 &&
          *ones < int64_t(1) << 40 && llvm::isPowerOf2_64(uint64_t(*ones) + 1))
        return remainder(integer(value), *ones + 1, type);
    }
  Interval lhs = range(x), rhs = range(y);
  StagedInt areNatural = both(isAtLeast(lhs.low, 0), isAtLeast(rhs.low, 0));
  if (isa<arith::AndIOp>(op))
    return bounded({0, b.min(lhs.high, rhs.high)}, type, areNatural);
  // Or and xor set no bit that is clear in both operands, so they are at most the sum.
  StagedInt isSmall = both(space.isWithin(lhs.high, 60), space.isWithin(rhs.high, 60));
  StagedInt low = isa<arith::OrIOp>(op) ? b.max(lhs.low, rhs.low) : StagedInt(0);
  StagedInt high = b.min(b.add(lhs.high, rhs.high), rangeOf(type).high);
  return bounded({low, high}, type, both(areNatural, isSmall));
}

AffineValue MaskEvaluator::shift(Operation *op) {
  Type type = op->getResult(0).getType();
  const AffineValue by = integer(op->getOperand(1));
  std::optional<int64_t> amount = by.form.constant.getConstant();
  if (!by.form.isPoint() || !by.isValid.isConstant(1) || !amount || *amount < 0 || *amount >= widthOf(type) ||
      *amount > 40)
    return bounded({}, type, 0);
  int64_t power = int64_t(1) << *amount;
  AffineValue x = integer(op->getOperand(0));
  if (isa<arith::ShLIOp>(op))
    return fitted(space.combine(x, power, {}, 0), type);
  StagedInt isKnown = 1;
  if (isa<arith::ShRUIOp>(op))
    isKnown = isAtLeast(range(op->getOperand(0)).low, 0);
  if (x.isValid.isConstant(0))
    return bounded({}, type, 0);
  return {space.quotient(x.form, power), both(x.isValid, isKnown)};
}

AffineValue MaskEvaluator::choose(arith::SelectOp op) {
  Coverage truth = condition(op.getCondition());
  if (truth.mayFail.isConstant(0))
    return integer(op.getTrueValue());
  if (truth.mayHold.isConstant(0))
    return integer(op.getFalseValue());
  Interval x = range(op.getTrueValue()), y = range(op.getFalseValue());
  StagedInt low = b.select(truth.mayHold, b.select(truth.mayFail, b.min(x.low, y.low), x.low), y.low);
  StagedInt high = b.select(truth.mayHold, b.select(truth.mayFail, b.max(x.high, y.high), x.high), y.high);
  return bounded({low, high}, op.getType());
}

AffineValue MaskEvaluator::element(tensor::ExtractOp op) {
  auto source = dyn_cast<BlockArgument>(op.getTensor());
  if (!source)
    return bounded({}, op.getType(), 0);
  unsigned capture = source.getArgNumber() - args.captures.front().getArgNumber();
  SmallVector<Interval> place = llvm::map_to_vector(op.getIndices(), [&](Value index) { return range(index); });
  std::optional<Interval> found = inputs.elements(b, capture, place);
  return found ? bounded(*found, op.getType()) : bounded({}, op.getType(), 0);
}
