//===- Scalars.cpp - Scalar arithmetic on any element type ----------------===//
#include "saccade/Import/Common/Scalars.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace saccade;

TypedAttr frontend::numberAttr(Type type, double value) {
  if (auto real = dyn_cast<FloatType>(type))
    return FloatAttr::get(real, value);
  return IntegerAttr::get(type, static_cast<int64_t>(value));
}

TypedAttr frontend::extremeAttr(Type type, bool largest) {
  if (auto real = dyn_cast<FloatType>(type))
    return FloatAttr::get(real, APFloat::getInf(real.getFloatSemantics(), /*Negative=*/!largest));
  unsigned width = type.getIntOrFloatBitWidth();
  if (width == 1)
    return IntegerAttr::get(type, largest);
  return IntegerAttr::get(type, largest ? APInt::getSignedMaxValue(width) : APInt::getSignedMinValue(width));
}

Value frontend::makeNumber(OpBuilder &b, Location loc, Type type, double value) {
  return arith::ConstantOp::create(b, loc, numberAttr(type, value));
}

/// `Real` for floating point, else `Integer`.
template <typename Real, typename Integer> static Value choose(OpBuilder &b, Location loc, Value x, Value y) {
  if (isa<FloatType>(x.getType()))
    return b.createOrFold<Real>(loc, x, y);
  return b.createOrFold<Integer>(loc, x, y);
}

Value frontend::add(OpBuilder &b, Location loc, Value x, Value y) {
  return choose<arith::AddFOp, arith::AddIOp>(b, loc, x, y);
}
Value frontend::sub(OpBuilder &b, Location loc, Value x, Value y) {
  return choose<arith::SubFOp, arith::SubIOp>(b, loc, x, y);
}
Value frontend::mul(OpBuilder &b, Location loc, Value x, Value y) {
  return choose<arith::MulFOp, arith::MulIOp>(b, loc, x, y);
}
/// Returns a divisor that is safe for integer division (neither 0 nor −1), and whether the original is −1: the lowest
/// integer divided by −1 overflows and traps.
static std::pair<Value, Value> makeDivisible(OpBuilder &b, Location loc, Value y) {
  APInt constant;
  if (matchPattern(y, m_ConstantInt(&constant)) && !constant.isZero() && !constant.isAllOnes())
    return {y, nullptr};
  Value one = frontend::makeNumber(b, loc, y.getType(), 1);
  Value isZero = frontend::compare(b, loc, arith::CmpIPredicate::eq, y, frontend::makeNumber(b, loc, y.getType(), 0));
  Value isMinusOne =
      frontend::compare(b, loc, arith::CmpIPredicate::eq, y, frontend::makeNumber(b, loc, y.getType(), -1));
  Value either = b.createOrFold<arith::OrIOp>(loc, isZero, isMinusOne);
  return {frontend::select(b, loc, either, one, y), isMinusOne};
}

Value frontend::div(OpBuilder &b, Location loc, Value x, Value y) {
  if (isa<FloatType>(x.getType()))
    return b.createOrFold<arith::DivFOp>(loc, x, y);
  auto [divisor, isMinusOne] = makeDivisible(b, loc, y);
  Value quotient = b.createOrFold<arith::DivSIOp>(loc, x, divisor);
  if (!isMinusOne)
    return quotient;
  return select(b, loc, isMinusOne, sub(b, loc, makeNumber(b, loc, x.getType(), 0), x), quotient);
}
Value frontend::maximum(OpBuilder &b, Location loc, Value x, Value y) {
  if (x.getType().isInteger(1))
    return b.createOrFold<arith::OrIOp>(loc, x, y);
  return choose<arith::MaximumFOp, arith::MaxSIOp>(b, loc, x, y);
}
Value frontend::minimum(OpBuilder &b, Location loc, Value x, Value y) {
  if (x.getType().isInteger(1))
    return b.createOrFold<arith::AndIOp>(loc, x, y);
  return choose<arith::MinimumFOp, arith::MinSIOp>(b, loc, x, y);
}

Value frontend::mod(OpBuilder &b, Location loc, Value x, Value y, bool truncated) {
  // The remainder by 1 is 0, like that by −1.
  if (!isa<FloatType>(x.getType()))
    y = makeDivisible(b, loc, y).first;
  Value rest = choose<arith::RemFOp, arith::RemSIOp>(b, loc, x, y);
  if (truncated)
    return rest;
  // Add the divisor if the signs of the remainder and the divisor differ.
  Value zero = makeNumber(b, loc, x.getType(), 0);
  Value differs = b.createOrFold<arith::XOrIOp>(loc, compare(b, loc, arith::CmpIPredicate::slt, rest, zero),
                                                compare(b, loc, arith::CmpIPredicate::slt, y, zero));
  Value isRest = compare(b, loc, arith::CmpIPredicate::ne, rest, zero);
  Value shifts = b.createOrFold<arith::AndIOp>(loc, differs, isRest);
  return select(b, loc, shifts, add(b, loc, rest, y), rest);
}

Value frontend::compare(OpBuilder &b, Location loc, arith::CmpIPredicate predicate, Value x, Value y) {
  using Integer = arith::CmpIPredicate;
  using Real = arith::CmpFPredicate;
  if (!isa<FloatType>(x.getType()))
    return b.createOrFold<arith::CmpIOp>(loc, predicate, x, y);
  Real real = [&] {
    switch (predicate) {
    case Integer::eq:
      return Real::OEQ;
    case Integer::ne:
      return Real::UNE;
    case Integer::slt:
    case Integer::ult:
      return Real::OLT;
    case Integer::sle:
    case Integer::ule:
      return Real::OLE;
    case Integer::sgt:
    case Integer::ugt:
      return Real::OGT;
    case Integer::sge:
    case Integer::uge:
      return Real::OGE;
    }
    llvm_unreachable("unhandled predicate");
  }();
  return b.createOrFold<arith::CmpFOp>(loc, real, x, y);
}

Value frontend::select(OpBuilder &b, Location loc, Value condition, Value x, Value y) {
  return b.createOrFold<arith::SelectOp>(loc, condition, x, y);
}

Value frontend::convert(OpBuilder &b, Location loc, Value x, Type type) {
  Type from = x.getType();
  if (from == type)
    return x;
  if (type.isInteger(1))
    return compare(b, loc, arith::CmpIPredicate::ne, x, makeNumber(b, loc, from, 0));
  bool isFlag = from.isInteger(1);
  if (from.isIndex() || type.isIndex()) {
    // Convert to and from index through i64.
    Type wide = b.getI64Type();
    if (from.isIndex())
      return convert(b, loc, b.createOrFold<arith::IndexCastOp>(loc, wide, x), type);
    return b.createOrFold<arith::IndexCastOp>(loc, type, convert(b, loc, x, wide));
  }
  if (auto real = dyn_cast<FloatType>(type)) {
    if (auto source = dyn_cast<FloatType>(from)) {
      if (source.getWidth() < real.getWidth())
        return b.createOrFold<arith::ExtFOp>(loc, type, x);
      if (source.getWidth() > real.getWidth())
        return b.createOrFold<arith::TruncFOp>(loc, type, x);
      // Neither f16 nor bf16 represents all values of the other: convert through f32.
      return convert(b, loc, convert(b, loc, x, b.getF32Type()), type);
    }
    if (isFlag)
      return b.createOrFold<arith::UIToFPOp>(loc, type, x);
    return b.createOrFold<arith::SIToFPOp>(loc, type, x);
  }
  if (isa<FloatType>(from))
    return b.createOrFold<arith::FPToSIOp>(loc, type, x);
  if (from.getIntOrFloatBitWidth() > type.getIntOrFloatBitWidth())
    return b.createOrFold<arith::TruncIOp>(loc, type, x);
  if (isFlag)
    return b.createOrFold<arith::ExtUIOp>(loc, type, x);
  return b.createOrFold<arith::ExtSIOp>(loc, type, x);
}
