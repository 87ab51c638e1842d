//===- StagedInt.cpp - Compile-time or run-time integers ----------------------===//
//
// Every operation folds constants and identities before it emits an op. Overflow wraps in both cases.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/StagedInt.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace saccade::attn;

/// The minimum b with |number| ≤ 2^b.
static unsigned bitsOf(int64_t number) {
  uint64_t magnitude = number < 0 ? -uint64_t(number) : uint64_t(number);
  return magnitude <= 1 ? 0 : llvm::Log2_64_Ceil(magnitude);
}

static int64_t floorDivided(int64_t lhs, int64_t divisor) {
  int64_t quotient = lhs / divisor;
  return quotient - (lhs % divisor < 0);
}

StagedInt::StagedInt(int64_t constant) : constant(constant), bits(bitsOf(constant)) {}

StagedInt StagedInt::withBits(unsigned smaller) const {
  StagedInt result = *this;
  result.bits = std::min(bits, smaller);
  return result;
}

StagedInt StagedIntBuilder::getOrEmit(Kind kind, ArrayRef<StagedInt> operands, unsigned bits,
                                      function_ref<Value()> emit) {
  assert(b && "a run-time value requires a builder");
  Key key{kind, {}, {}};
  for (auto [i, operand] : llvm::enumerate(operands)) {
    std::get<1>(key)[i] = operand.getValue().getAsOpaquePointer();
    std::get<2>(key)[i] = operand.getConstant().value_or(0);
  }
  Value &known = emitted[key];
  if (!known) {
    setInsertionPointFor(llvm::map_to_vector(operands, [](StagedInt operand) { return operand.getValue(); }));
    known = emit();
  }
  return StagedInt(known, std::min(bits, 63u));
}

void StagedIntBuilder::setInsertionPointFor(ArrayRef<Value> operands) {
  bool isInvariant = loop && llvm::none_of(operands, [&](Value operand) {
                       return operand && loop->isAncestor(operand.getParentBlock()->getParentOp());
                     });
  if (isInvariant)
    b->setInsertionPoint(loop);
  else
    b->restoreInsertionPoint(home);
}

Value StagedIntBuilder::materialize(StagedInt number, bool isTruth) {
  if (Value value = number.getValue())
    return value;
  if (isTruth)
    return arith::ConstantOp::create(*b, *loc, b->getBoolAttr(!number.isConstant(0)));
  return arith::ConstantIndexOp::create(*b, *loc, *number.getConstant());
}

StagedInt StagedIntBuilder::fromValue(Value value) {
  APInt constant;
  // true is 1, not −1.
  if (matchPattern(value, m_ConstantInt(&constant)))
    return StagedInt(value.getType().isInteger(1) ? constant.getZExtValue() : constant.sextOrTrunc(64).getSExtValue());
  if (value.getType().isIndex())
    return StagedInt(value);
  setInsertionPointFor(value);
  unsigned width = value.getType().getIntOrFloatBitWidth();
  if (width > 64)
    value = arith::TruncIOp::create(*b, *loc, b->getI64Type(), value);
  if (width == 1)
    return StagedInt(arith::IndexCastUIOp::create(*b, *loc, b->getIndexType(), value), 0);
  return StagedInt(arith::IndexCastOp::create(*b, *loc, b->getIndexType(), value), std::min(width, 64u) - 1);
}

StagedInt StagedIntBuilder::add(StagedInt lhs, StagedInt rhs) {
  auto x = lhs.getConstant(), y = rhs.getConstant();
  if (x && y)
    return StagedInt(int64_t(uint64_t(*x) + uint64_t(*y)));
  if (lhs.isConstant(0))
    return rhs;
  if (rhs.isConstant(0))
    return lhs;
  return getOrEmit(Kind::Add, {lhs, rhs}, std::max(lhs.getBits(), rhs.getBits()) + 1,
                   [&] { return arith::AddIOp::create(*b, *loc, integer(lhs), integer(rhs)); });
}

StagedInt StagedIntBuilder::sub(StagedInt lhs, StagedInt rhs) {
  auto x = lhs.getConstant(), y = rhs.getConstant();
  if (x && y)
    return StagedInt(int64_t(uint64_t(*x) - uint64_t(*y)));
  if (rhs.isConstant(0))
    return lhs;
  if (lhs == rhs)
    return 0;
  return getOrEmit(Kind::Sub, {lhs, rhs}, std::max(lhs.getBits(), rhs.getBits()) + 1,
                   [&] { return arith::SubIOp::create(*b, *loc, integer(lhs), integer(rhs)); });
}

StagedInt StagedIntBuilder::mul(StagedInt lhs, StagedInt rhs) {
  auto x = lhs.getConstant(), y = rhs.getConstant();
  if (x && y)
    return StagedInt(int64_t(uint64_t(*x) * uint64_t(*y)));
  if (lhs.isConstant(0) || rhs.isConstant(0))
    return 0;
  if (lhs.isConstant(1))
    return rhs;
  if (rhs.isConstant(1))
    return lhs;
  return getOrEmit(Kind::Mul, {lhs, rhs}, lhs.getBits() + rhs.getBits(),
                   [&] { return arith::MulIOp::create(*b, *loc, integer(lhs), integer(rhs)); });
}

StagedInt StagedIntBuilder::min(StagedInt lhs, StagedInt rhs) {
  auto x = lhs.getConstant(), y = rhs.getConstant();
  if (x && y)
    return StagedInt(std::min(*x, *y));
  if (lhs == rhs || lhs.isConstant(INT64_MIN) || rhs.isConstant(INT64_MAX))
    return lhs;
  if (rhs.isConstant(INT64_MIN) || lhs.isConstant(INT64_MAX))
    return rhs;
  return getOrEmit(Kind::Min, {lhs, rhs}, std::max(lhs.getBits(), rhs.getBits()),
                   [&] { return arith::MinSIOp::create(*b, *loc, integer(lhs), integer(rhs)); });
}

StagedInt StagedIntBuilder::max(StagedInt lhs, StagedInt rhs) {
  auto x = lhs.getConstant(), y = rhs.getConstant();
  if (x && y)
    return StagedInt(std::max(*x, *y));
  if (lhs == rhs || lhs.isConstant(INT64_MAX) || rhs.isConstant(INT64_MIN))
    return lhs;
  if (rhs.isConstant(INT64_MAX) || lhs.isConstant(INT64_MIN))
    return rhs;
  return getOrEmit(Kind::Max, {lhs, rhs}, std::max(lhs.getBits(), rhs.getBits()),
                   [&] { return arith::MaxSIOp::create(*b, *loc, integer(lhs), integer(rhs)); });
}

StagedInt StagedIntBuilder::floorDiv(StagedInt lhs, StagedInt divisor) {
  auto x = lhs.getConstant(), y = divisor.getConstant();
  if (y && *y <= 0)
    return 0;
  if (x && y)
    return StagedInt(floorDivided(*x, *y));
  if (divisor.isConstant(1))
    return lhs;
  // Emitted code must not divide by zero; the result for divisors that are not positive is unused.
  StagedInt safe = max(divisor, 1);
  return getOrEmit(Kind::FloorDiv, {lhs, safe}, lhs.getBits(),
                   [&] { return arith::FloorDivSIOp::create(*b, *loc, integer(lhs), integer(safe)); });
}

StagedInt StagedIntBuilder::truncDiv(StagedInt lhs, StagedInt divisor) {
  auto x = lhs.getConstant(), y = divisor.getConstant();
  if (y && *y <= 0)
    return 0;
  if (x && y)
    return StagedInt(*x / *y);
  if (divisor.isConstant(1))
    return lhs;
  StagedInt safe = max(divisor, 1);
  return getOrEmit(Kind::TruncDiv, {lhs, safe}, lhs.getBits(),
                   [&] { return arith::DivSIOp::create(*b, *loc, integer(lhs), integer(safe)); });
}

StagedInt StagedIntBuilder::mod(StagedInt lhs, StagedInt divisor) {
  return sub(lhs, mul(floorDiv(lhs, divisor), divisor)).withBits(divisor.getBits());
}

StagedInt StagedIntBuilder::isEqual(StagedInt lhs, StagedInt rhs) {
  auto x = lhs.getConstant(), y = rhs.getConstant();
  if ((x && y) || lhs == rhs)
    return lhs == rhs;
  return getOrEmit(Kind::Equal, {lhs, rhs}, 0, [&] {
    return arith::CmpIOp::create(*b, *loc, arith::CmpIPredicate::eq, integer(lhs), integer(rhs));
  });
}

StagedInt StagedIntBuilder::isLess(StagedInt lhs, StagedInt rhs) {
  auto x = lhs.getConstant(), y = rhs.getConstant();
  if (x && y)
    return *x < *y;
  if (lhs == rhs || lhs.isConstant(INT64_MAX) || rhs.isConstant(INT64_MIN))
    return 0;
  return getOrEmit(Kind::Less, {lhs, rhs}, 0, [&] {
    return arith::CmpIOp::create(*b, *loc, arith::CmpIPredicate::slt, integer(lhs), integer(rhs));
  });
}

StagedInt StagedIntBuilder::both(StagedInt lhs, StagedInt rhs) {
  if (lhs.isConstant(0) || rhs.isConstant(0))
    return 0;
  if (lhs.isConstant(1) || lhs == rhs)
    return rhs;
  if (rhs.isConstant(1))
    return lhs;
  return getOrEmit(Kind::Both, {lhs, rhs}, 0, [&] { return arith::AndIOp::create(*b, *loc, truth(lhs), truth(rhs)); });
}

StagedInt StagedIntBuilder::either(StagedInt lhs, StagedInt rhs) {
  if (lhs.isConstant(1) || rhs.isConstant(1))
    return 1;
  if (lhs.isConstant(0) || lhs == rhs)
    return rhs;
  if (rhs.isConstant(0))
    return lhs;
  return getOrEmit(Kind::Either, {lhs, rhs}, 0, [&] { return arith::OrIOp::create(*b, *loc, truth(lhs), truth(rhs)); });
}

StagedInt StagedIntBuilder::negate(StagedInt number) {
  if (auto x = number.getConstant())
    return !*x;
  return getOrEmit(Kind::Negate, {number}, 0, [&] { return arith::XOrIOp::create(*b, *loc, truth(number), truth(1)); });
}

StagedInt StagedIntBuilder::select(StagedInt condition, StagedInt first, StagedInt second) {
  if (auto x = condition.getConstant())
    return *x ? first : second;
  if (first == second)
    return first;
  return getOrEmit(Kind::Select, {condition, first, second}, std::max(first.getBits(), second.getBits()), [&] {
    // Truth values are i1; constants have both types.
    auto isTruth = [](StagedInt number) { return number.getValue() && number.getValue().getType().isInteger(1); };
    bool areTruths = isTruth(first) || isTruth(second);
    return arith::SelectOp::create(*b, *loc, truth(condition), materialize(first, areTruths),
                                   materialize(second, areTruths));
  });
}
