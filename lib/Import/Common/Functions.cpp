//===- Functions.cpp - Scalar functions -----------------------------------===//
#include "saccade/Import/Common/Functions.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include <cmath>

using namespace mlir;
using namespace saccade;

static Value number(OpBuilder &b, Location loc, Value like, double value) {
  return frontend::makeNumber(b, loc, like.getType(), value);
}

Value frontend::negate(OpBuilder &b, Location loc, Value x) {
  if (isa<FloatType>(x.getType()))
    return b.createOrFold<arith::NegFOp>(loc, x);
  return sub(b, loc, number(b, loc, x, 0), x);
}

Value frontend::absolute(OpBuilder &b, Location loc, Value x) {
  if (isa<FloatType>(x.getType()))
    return b.createOrFold<math::AbsFOp>(loc, x);
  return b.createOrFold<math::AbsIOp>(loc, x);
}

Value frontend::sign(OpBuilder &b, Location loc, Value x) {
  Value zero = number(b, loc, x, 0);
  Value isLess = compare(b, loc, arith::CmpIPredicate::slt, x, zero);
  Value isMore = compare(b, loc, arith::CmpIPredicate::sgt, x, zero);
  Value upper = select(b, loc, isMore, number(b, loc, x, 1), x);
  return select(b, loc, isLess, number(b, loc, x, -1), upper);
}

Value frontend::relu(OpBuilder &b, Location loc, Value x) { return maximum(b, loc, x, number(b, loc, x, 0)); }
Value frontend::square(OpBuilder &b, Location loc, Value x) { return mul(b, loc, x, x); }
Value frontend::reciprocal(OpBuilder &b, Location loc, Value x) { return div(b, loc, number(b, loc, x, 1), x); }

Value frontend::isNaN(OpBuilder &b, Location loc, Value x) {
  return b.createOrFold<arith::CmpFOp>(loc, arith::CmpFPredicate::UNO, x, x);
}

Value frontend::zeroForNaN(OpBuilder &b, Location loc, Value x) {
  return select(b, loc, isNaN(b, loc, x), number(b, loc, x, 0), x);
}

Value frontend::logicalNot(OpBuilder &b, Location loc, Value x) {
  return b.createOrFold<arith::XOrIOp>(loc, x, number(b, loc, x, 1));
}

Value frontend::whereNegative(OpBuilder &b, Location loc, Value x, Value low) {
  Value isNegative = compare(b, loc, arith::CmpIPredicate::slt, x, number(b, loc, x, 0));
  return select(b, loc, isNegative, low, x);
}

Value frontend::elu(OpBuilder &b, Location loc, Value x, double alpha) {
  return whereNegative(b, loc, x, mul(b, loc, number(b, loc, x, alpha), b.createOrFold<math::ExpM1Op>(loc, x)));
}

Value frontend::sigmoid(OpBuilder &b, Location loc, Value x) {
  Value exp = b.createOrFold<math::ExpOp>(loc, b.createOrFold<arith::NegFOp>(loc, x));
  Value one = number(b, loc, x, 1);
  return div(b, loc, one, add(b, loc, one, exp));
}

Value frontend::swish(OpBuilder &b, Location loc, Value x, double alpha) {
  return mul(b, loc, x, sigmoid(b, loc, mul(b, loc, number(b, loc, x, alpha), x)));
}

Value frontend::softplus(OpBuilder &b, Location loc, Value x) {
  Value distance = b.createOrFold<arith::NegFOp>(loc, b.createOrFold<math::AbsFOp>(loc, x));
  Value rest = b.createOrFold<math::Log1pOp>(loc, b.createOrFold<math::ExpOp>(loc, distance));
  return add(b, loc, relu(b, loc, x), rest);
}

Value frontend::gelu(OpBuilder &b, Location loc, Value x, bool byTanh) {
  Value inner;
  auto times = [&](double factor, Value value) { return mul(b, loc, number(b, loc, x, factor), value); };
  if (byTanh) {
    Value cube = mul(b, loc, x, square(b, loc, x));
    Value sum = add(b, loc, x, times(0.044715, cube));
    inner = b.createOrFold<math::TanhOp>(loc, times(std::sqrt(2 / M_PI), sum));
  } else {
    inner = b.createOrFold<math::ErfOp>(loc, times(M_SQRT1_2, x));
  }
  return mul(b, loc, times(0.5, x), add(b, loc, number(b, loc, x, 1), inner));
}

/// Exponentiation by squaring modulo 2^bits; 1 / base is truncated towards 0. For a constant exponent everything except
/// the multiplications folds away.
static Value integerPower(OpBuilder &b, Location loc, Value base, Value exponent) {
  unsigned bits = exponent.getType().getIntOrFloatBitWidth();
  Value one = number(b, loc, base, 1), none = number(b, loc, base, 0), zero = number(b, loc, exponent, 0);
  auto hasBit = [&](unsigned bit) {
    auto place = b.getIntegerAttr(exponent.getType(), APInt::getOneBitSet(bits, bit));
    Value masked = b.createOrFold<arith::AndIOp>(loc, exponent, arith::ConstantOp::create(b, loc, place));
    return frontend::compare(b, loc, arith::CmpIPredicate::ne, masked, zero);
  };
  APInt known;
  bool isKnown = matchPattern(exponent, m_ConstantInt(&known));
  // Exclude the sign bit.
  unsigned last = isKnown && !known.isNegative() ? known.getActiveBits() : bits - 1;
  Value result = one, square = base;
  for (unsigned bit = 0; bit < last; ++bit) {
    square = bit ? frontend::mul(b, loc, square, square) : base;
    result = frontend::select(b, loc, hasBit(bit), frontend::mul(b, loc, result, square), result);
  }
  if (isKnown && !known.isNegative())
    return result;
  Value isOne = frontend::compare(b, loc, arith::CmpIPredicate::eq, base, one);
  Value isMinusOne = frontend::compare(b, loc, arith::CmpIPredicate::eq, base, number(b, loc, base, -1));
  Value sign = frontend::select(b, loc, hasBit(0), base, one);
  Value inverse = frontend::select(b, loc, isMinusOne, sign, frontend::select(b, loc, isOne, one, none));
  Value isNegative = frontend::compare(b, loc, arith::CmpIPredicate::slt, exponent, zero);
  return frontend::select(b, loc, isNegative, inverse, result);
}

Value frontend::power(OpBuilder &b, Location loc, Value base, Value exponent, std::optional<double> known) {
  Type type = base.getType();
  if (isa<IntegerType>(type) && isa<IntegerType>(exponent.getType())) {
    if (known)
      exponent = number(b, loc, exponent, *known);
    return integerPower(b, loc, base, exponent.getType().isInteger(1) ? convert(b, loc, exponent, type) : exponent);
  }
  if (!isa<FloatType>(type)) {
    Value real = convert(b, loc, base, b.getF64Type()), to = convert(b, loc, exponent, b.getF64Type());
    return convert(b, loc, b.createOrFold<math::PowFOp>(loc, real, to), type);
  }
  if (known == 2.0)
    return square(b, loc, base);
  if (known == 3.0)
    return mul(b, loc, base, square(b, loc, base));
  if (known == 0.5)
    return b.createOrFold<math::SqrtOp>(loc, base);
  return b.createOrFold<math::PowFOp>(loc, base, convert(b, loc, exponent, type));
}
