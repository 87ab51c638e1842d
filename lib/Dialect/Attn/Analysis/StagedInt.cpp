//===- StagedInt.cpp - Integers that are known now or at run time ----------------===//
//
// Each operation first folds what constants decide and only then emits an op. Compiled code and the compiler wrap
// alike.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/StagedInt.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace saccade::attn;

/// The least b with |number| ≤ 2^b.
static unsigned bitsOf(int64_t number) {
  uint64_t magnitude = number < 0 ? -uint64_t(number) : uint64_t(number);
  return magnitude <= 1 ? 0 : llvm::Log2_64_Ceil(magnitude);
}

static int64_t floorDivided(int64_t left, int64_t divisor) {
  int64_t quotient = left / divisor;
  return quotient - (left % divisor < 0);
}

StagedInt::StagedInt(int64_t constant) : constant(constant), bits(bitsOf(constant)) {}

StagedInt StagedInt::withBits(unsigned smaller) const {
  StagedInt result = *this;
  result.bits = std::min(bits, smaller);
  return result;
}

StagedInt StagedIntBuilder::once(Kind kind, ArrayRef<StagedInt> operands, unsigned bits, function_ref<Value()> emit) {
  assert(b && "a number that is known at run time only, and nowhere to compute it");
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
  if (matchPattern(value, m_ConstantInt(&constant)))
    return StagedInt(constant.getSExtValue());
  if (value.getType().isIndex())
    return StagedInt(value);
  setInsertionPointFor(value);
  unsigned width = value.getType().getIntOrFloatBitWidth();
  if (width > 64)
    value = arith::TruncIOp::create(*b, *loc, b->getI64Type(), value);
  // A truth value is 1, not −1.
  if (width == 1)
    return StagedInt(arith::IndexCastUIOp::create(*b, *loc, b->getIndexType(), value), 0);
  return StagedInt(arith::IndexCastOp::create(*b, *loc, b->getIndexType(), value), std::min(width, 64u) - 1);
}

StagedInt StagedIntBuilder::add(StagedInt left, StagedInt right) {
  auto x = left.getConstant(), y = right.getConstant();
  if (x && y)
    return StagedInt(int64_t(uint64_t(*x) + uint64_t(*y)));
  if (left.isConstant(0))
    return right;
  if (right.isConstant(0))
    return left;
  return once(Kind::Add, {left, right}, std::max(left.getBits(), right.getBits()) + 1,
              [&] { return arith::AddIOp::create(*b, *loc, integer(left), integer(right)); });
}

StagedInt StagedIntBuilder::sub(StagedInt left, StagedInt right) {
  auto x = left.getConstant(), y = right.getConstant();
  if (x && y)
    return StagedInt(int64_t(uint64_t(*x) - uint64_t(*y)));
  if (right.isConstant(0))
    return left;
  if (left == right)
    return 0;
  return once(Kind::Sub, {left, right}, std::max(left.getBits(), right.getBits()) + 1,
              [&] { return arith::SubIOp::create(*b, *loc, integer(left), integer(right)); });
}

StagedInt StagedIntBuilder::mul(StagedInt left, StagedInt right) {
  auto x = left.getConstant(), y = right.getConstant();
  if (x && y)
    return StagedInt(int64_t(uint64_t(*x) * uint64_t(*y)));
  if (left.isConstant(0) || right.isConstant(0))
    return 0;
  if (left.isConstant(1))
    return right;
  if (right.isConstant(1))
    return left;
  return once(Kind::Mul, {left, right}, left.getBits() + right.getBits(),
              [&] { return arith::MulIOp::create(*b, *loc, integer(left), integer(right)); });
}

StagedInt StagedIntBuilder::min(StagedInt left, StagedInt right) {
  auto x = left.getConstant(), y = right.getConstant();
  if (x && y)
    return StagedInt(std::min(*x, *y));
  if (left == right || left.isConstant(INT64_MIN) || right.isConstant(INT64_MAX))
    return left;
  if (right.isConstant(INT64_MIN) || left.isConstant(INT64_MAX))
    return right;
  return once(Kind::Min, {left, right}, std::max(left.getBits(), right.getBits()),
              [&] { return arith::MinSIOp::create(*b, *loc, integer(left), integer(right)); });
}

StagedInt StagedIntBuilder::max(StagedInt left, StagedInt right) {
  auto x = left.getConstant(), y = right.getConstant();
  if (x && y)
    return StagedInt(std::max(*x, *y));
  if (left == right || left.isConstant(INT64_MAX) || right.isConstant(INT64_MIN))
    return left;
  if (right.isConstant(INT64_MAX) || left.isConstant(INT64_MIN))
    return right;
  return once(Kind::Max, {left, right}, std::max(left.getBits(), right.getBits()),
              [&] { return arith::MaxSIOp::create(*b, *loc, integer(left), integer(right)); });
}

StagedInt StagedIntBuilder::floorDiv(StagedInt left, StagedInt divisor) {
  auto x = left.getConstant(), y = divisor.getConstant();
  if (y && *y <= 0)
    return 0;
  if (x && y)
    return StagedInt(floorDivided(*x, *y));
  if (divisor.isConstant(1))
    return left;
  // Code runs for any divisor; of those that are not positive nobody looks at the result.
  StagedInt safe = max(divisor, 1);
  return once(Kind::FloorDiv, {left, safe}, left.getBits(),
              [&] { return arith::FloorDivSIOp::create(*b, *loc, integer(left), integer(safe)); });
}

StagedInt StagedIntBuilder::truncDiv(StagedInt left, StagedInt divisor) {
  auto x = left.getConstant(), y = divisor.getConstant();
  if (y && *y <= 0)
    return 0;
  if (x && y)
    return StagedInt(*x / *y);
  if (divisor.isConstant(1))
    return left;
  StagedInt safe = max(divisor, 1);
  return once(Kind::TruncDiv, {left, safe}, left.getBits(),
              [&] { return arith::DivSIOp::create(*b, *loc, integer(left), integer(safe)); });
}

StagedInt StagedIntBuilder::mod(StagedInt left, StagedInt divisor) {
  return sub(left, mul(floorDiv(left, divisor), divisor)).withBits(divisor.getBits());
}

StagedInt StagedIntBuilder::isEqual(StagedInt left, StagedInt right) {
  auto x = left.getConstant(), y = right.getConstant();
  if ((x && y) || left == right)
    return left == right;
  return once(Kind::Equal, {left, right}, 0,
              [&] { return arith::CmpIOp::create(*b, *loc, arith::CmpIPredicate::eq, integer(left), integer(right)); });
}

StagedInt StagedIntBuilder::isLess(StagedInt left, StagedInt right) {
  auto x = left.getConstant(), y = right.getConstant();
  if (x && y)
    return *x < *y;
  if (left == right || left.isConstant(INT64_MAX) || right.isConstant(INT64_MIN))
    return 0;
  return once(Kind::Less, {left, right}, 0, [&] {
    return arith::CmpIOp::create(*b, *loc, arith::CmpIPredicate::slt, integer(left), integer(right));
  });
}

StagedInt StagedIntBuilder::both(StagedInt left, StagedInt right) {
  if (left.isConstant(0) || right.isConstant(0))
    return 0;
  if (left.isConstant(1) || left == right)
    return right;
  if (right.isConstant(1))
    return left;
  return once(Kind::Both, {left, right}, 0, [&] { return arith::AndIOp::create(*b, *loc, truth(left), truth(right)); });
}

StagedInt StagedIntBuilder::either(StagedInt left, StagedInt right) {
  if (left.isConstant(1) || right.isConstant(1))
    return 1;
  if (left.isConstant(0) || left == right)
    return right;
  if (right.isConstant(0))
    return left;
  return once(Kind::Either, {left, right}, 0,
              [&] { return arith::OrIOp::create(*b, *loc, truth(left), truth(right)); });
}

StagedInt StagedIntBuilder::negate(StagedInt number) {
  if (auto x = number.getConstant())
    return !*x;
  return once(Kind::Negate, {number}, 0, [&] { return arith::XOrIOp::create(*b, *loc, truth(number), truth(1)); });
}

StagedInt StagedIntBuilder::select(StagedInt condition, StagedInt first, StagedInt second) {
  if (auto x = condition.getConstant())
    return *x ? first : second;
  if (first == second)
    return first;
  return once(Kind::Select, {condition, first, second}, std::max(first.getBits(), second.getBits()), [&] {
    // Truth values are i1; a constant may be either.
    auto isTruth = [](StagedInt number) { return number.getValue() && number.getValue().getType().isInteger(1); };
    bool areTruths = isTruth(first) || isTruth(second);
    return arith::SelectOp::create(*b, *loc, truth(condition), materialize(first, areTruths),
                                   materialize(second, areTruths));
  });
}
