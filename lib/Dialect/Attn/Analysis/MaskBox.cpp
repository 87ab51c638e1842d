//===- MaskBox.cpp - Classification of a box of positions ---------------------===//
//
// Evaluates integers by kind of op, and conditions as the pair "may hold, may fail". The transfer functions of integers
// are in MaskTransfer.cpp.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/MaskBox.h"
#include "MaskEvaluator.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace saccade::attn;

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

Interval MaskEvaluator::rangeOf(Type type) {
  unsigned width = widthOf(type);
  if (width >= 64)
    return {INT64_MIN, INT64_MAX};
  int64_t half = int64_t(1) << (width - 1);
  return {-half, half - 1};
}

Interval MaskEvaluator::rangeOf(const AffineValue &value, Type type) {
  Interval all = rangeOf(type);
  if (value.isValid.isConstant(0))
    return all;
  Interval known = space.bounds(value.form);
  return {b.select(value.isValid, known.low, all.low), b.select(value.isValid, known.high, all.high)};
}

AffineValue MaskEvaluator::fitted(AffineValue value, Type type) {
  if (widthOf(type) >= 64 || value.isValid.isConstant(0))
    return value;
  Interval all = rangeOf(type), known = space.bounds(value.form);
  StagedInt fits = both(b.isAtMost(all.low, known.low), b.isAtMost(known.high, all.high));
  return {value.form, both(value.isValid, fits)};
}

AffineValue MaskEvaluator::bounded(Interval bounds, Type type, StagedInt isKnown) {
  Interval all = rangeOf(type);
  if (isKnown.isConstant(0))
    return {space.atom(all), 1};
  return {space.atom({b.select(isKnown, bounds.low, all.low), b.select(isKnown, bounds.high, all.high)}), 1};
}

AffineValue MaskEvaluator::integer(Value value) {
  auto known = integers.find(value);
  if (known != integers.end())
    return known->second;
  AffineValue computed = compute(value);
  return integers[value] = computed;
}

AffineValue MaskEvaluator::compute(Value value) {
  if (!value.getType().isIntOrIndex() || widthOf(value.getType()) > 64)
    return AffineValue::unknown();
  APInt constant;
  if (matchPattern(value, m_ConstantInt(&constant)))
    return {{constant.getSExtValue(), {}}, 1};
  if (value.getType().isInteger(1)) {
    // As a signed i1, true is −1.
    Coverage truth = condition(value);
    return bounded({b.select(truth.mayHold, -1, 0), b.select(truth.mayFail, 0, -1)}, value.getType());
  }
  if (auto argument = dyn_cast<BlockArgument>(value))
    return {{inputs.scalar(b, argument.getArgNumber() - args.captures.front().getArgNumber()), {}}, 1};
  return computeOp(value.getDefiningOp());
}

AffineValue MaskEvaluator::computeOp(Operation *op) {
  Type type = op->getResult(0).getType();
  auto sum = [&](int64_t sign) {
    AffineValue x = integer(op->getOperand(0)), y = integer(op->getOperand(1));
    return fitted(space.combine(x, 1, y, sign), type);
  };
  auto divided = [&](Rounding rounding, bool isUnsigned) {
    return divide(op->getOperand(0), op->getOperand(1), type, rounding, isUnsigned);
  };
  auto remaining = [&](bool isUnsigned) { return remainder(op->getOperand(0), op->getOperand(1), type, isUnsigned); };
  // The operand itself if it is not negative: signed and unsigned extension are then equal.
  auto nonNegative = [&] {
    Value operand = op->getOperand(0);
    if (operand.getType().isInteger(1)) {
      Coverage truth = condition(operand);
      return bounded({b.select(truth.mayFail, 0, 1), b.select(truth.mayHold, 1, 0)}, type);
    }
    AffineValue value = integer(operand);
    value.isValid = both(value.isValid, isAtLeast(range(operand).low, 0));
    return fitted(value, type);
  };
  return llvm::TypeSwitch<Operation *, AffineValue>(op)
      .Case<arith::AddIOp>([&](auto) { return sum(1); })
      .Case<arith::SubIOp>([&](arith::SubIOp sub) {
        std::optional<AffineValue> rest = writtenRemainder(sub);
        return rest ? *rest : sum(-1);
      })
      .Case<arith::MulIOp>([&](auto mul) { return multiply(mul); })
      .Case<arith::FloorDivSIOp>([&](auto) { return divided(Rounding::Down, false); })
      .Case<arith::CeilDivSIOp>([&](auto) { return divided(Rounding::Up, false); })
      .Case<arith::DivSIOp>([&](auto) { return divided(Rounding::ToZero, false); })
      .Case<arith::DivUIOp>([&](auto) { return divided(Rounding::Down, true); })
      .Case<arith::CeilDivUIOp>([&](auto) { return divided(Rounding::Up, true); })
      .Case<arith::RemSIOp>([&](auto) { return remaining(false); })
      .Case<arith::RemUIOp>([&](auto) { return remaining(true); })
      .Case<arith::MinSIOp>([&](auto) { return extremum(op, false, false); })
      .Case<arith::MaxSIOp>([&](auto) { return extremum(op, true, false); })
      .Case<arith::MinUIOp>([&](auto) { return extremum(op, false, true); })
      .Case<arith::MaxUIOp>([&](auto) { return extremum(op, true, true); })
      .Case<arith::AndIOp, arith::OrIOp, arith::XOrIOp>([&](auto) { return bitwise(op); })
      .Case<arith::ShLIOp, arith::ShRSIOp, arith::ShRUIOp>([&](auto) { return shift(op); })
      .Case<arith::SelectOp>([&](auto select) { return choose(select); })
      .Case<arith::ExtSIOp, arith::IndexCastOp, arith::TruncIOp>(
          [&](auto) { return fitted(integer(op->getOperand(0)), type); })
      .Case<arith::ExtUIOp, arith::IndexCastUIOp>([&](auto) { return nonNegative(); })
      .Case<math::AbsIOp>([&](auto) {
        Interval x = range(op->getOperand(0));
        StagedInt isSafe = b.isLess(rangeOf(type).low, x.low);
        StagedInt low = b.max(0, b.max(x.low, b.sub(0, x.high)));
        return bounded({low, b.max(x.high, b.sub(0, x.low))}, type, isSafe);
      })
      .Case<LengthOp>([&](LengthOp length) { return AffineValue{{inputs.length(b, length.getRole()), {}}, 1}; })
      .Case<tensor::DimOp>([&](tensor::DimOp dim) {
        std::optional<int64_t> place = dim.getConstantIndex();
        auto source = dyn_cast<BlockArgument>(dim.getSource());
        if (!place || !source)
          return bounded({0, INT64_MAX}, type);
        unsigned capture = source.getArgNumber() - args.captures.front().getArgNumber();
        return AffineValue{{inputs.extent(b, capture, *place), {}}, 1};
      })
      .Case<tensor::ExtractOp>([&](auto extract) { return element(extract); })
      .Default([&](auto) { return bounded(rangeOf(type), type); });
}

//===----------------------------------------------------------------------===//
// Conditions
//===----------------------------------------------------------------------===//

Coverage MaskEvaluator::condition(Value value) {
  auto known = conditions.find(value);
  if (known != conditions.end())
    return known->second;
  Coverage computed = computeCondition(value);
  return conditions[value] = computed;
}

Coverage MaskEvaluator::computeCondition(Value value) {
  APInt constant;
  if (matchPattern(value, m_ConstantInt(&constant)))
    return decided(!constant.isZero());
  Operation *op = value.getDefiningOp();
  if (!op) {
    unsigned capture = cast<BlockArgument>(value).getArgNumber() - args.captures.front().getArgNumber();
    return decided(b.negate(b.isEqual(inputs.scalar(b, capture), 0)));
  }
  auto operands = [&] { return std::pair(condition(op->getOperand(0)), condition(op->getOperand(1))); };
  auto differ = [&](const Coverage &x, const Coverage &y) -> Coverage {
    return {b.either(both(x.mayHold, y.mayFail), both(x.mayFail, y.mayHold)),
            b.either(both(x.mayHold, y.mayHold), both(x.mayFail, y.mayFail))};
  };
  return llvm::TypeSwitch<Operation *, Coverage>(op)
      .Case<arith::AndIOp>([&](auto) -> Coverage {
        auto [x, y] = operands();
        return {both(x.mayHold, y.mayHold), b.either(x.mayFail, y.mayFail)};
      })
      .Case<arith::OrIOp>([&](auto) -> Coverage {
        auto [x, y] = operands();
        return {b.either(x.mayHold, y.mayHold), both(x.mayFail, y.mayFail)};
      })
      .Case<arith::XOrIOp>([&](auto) {
        auto [x, y] = operands();
        return differ(x, y);
      })
      .Case<arith::SelectOp>([&](arith::SelectOp select) -> Coverage {
        Coverage truth = condition(select.getCondition());
        Coverage x = condition(select.getTrueValue()), y = condition(select.getFalseValue());
        return {b.either(both(truth.mayHold, x.mayHold), both(truth.mayFail, y.mayHold)),
                b.either(both(truth.mayHold, x.mayFail), both(truth.mayFail, y.mayFail))};
      })
      .Case<arith::CmpIOp>([&](arith::CmpIOp compared) {
        if (!compared.getLhs().getType().isInteger(1))
          return compare(compared);
        auto [x, y] = operands();
        Coverage other = differ(x, y);
        if (compared.getPredicate() == arith::CmpIPredicate::ne)
          return other;
        if (compared.getPredicate() == arith::CmpIPredicate::eq)
          return Coverage{other.mayFail, other.mayHold};
        return Coverage();
      })
      .Case<tensor::ExtractOp>([&](tensor::ExtractOp extract) -> Coverage {
        auto source = dyn_cast<BlockArgument>(extract.getTensor());
        if (!source)
          return {};
        unsigned capture = source.getArgNumber() - args.captures.front().getArgNumber();
        SmallVector<Interval> place =
            llvm::map_to_vector(extract.getIndices(), [&](Value index) { return range(index); });
        std::optional<Interval> found = inputs.elements(b, capture, place);
        if (!found)
          return {};
        return {b.negate(b.isEqual(found->high, 0)), b.isEqual(found->low, 0)};
      })
      .Default([](auto) { return Coverage(); });
}

Coverage MaskEvaluator::compare(arith::CmpIOp op) {
  using Predicate = arith::CmpIPredicate;
  Type type = op.getLhs().getType();
  if (widthOf(type) > 64)
    return {};
  AffineValue lhs = integer(op.getLhs()), rhs = integer(op.getRhs());
  Interval x = rangeOf(lhs, type), y = rangeOf(rhs, type);
  Predicate predicate = op.getPredicate();

  // An unsigned comparison with a bound that is not negative consists of two signed ones: 0 ≤ x, and x with the bound.
  switch (predicate) {
  case Predicate::ult:
  case Predicate::ule:
  case Predicate::ugt:
  case Predicate::uge: {
    bool isBoundLeft = predicate == Predicate::ugt || predicate == Predicate::uge;
    if (isBoundLeft) // x > y is the negation of x ≤ y
      predicate = predicate == Predicate::ugt ? Predicate::ule : Predicate::ult;
    StagedInt isNatural = isAtLeast(y.low, 0);
    Interval difference = {b.isAtMost(0, x.high), b.isLess(x.low, 0)};
    Coverage below = predicate == Predicate::ult ? Coverage{b.isLess(x.low, y.high), b.isAtMost(y.low, x.high)}
                                                 : Coverage{b.isAtMost(x.low, y.high), b.isLess(y.low, x.high)};
    Coverage result = {both(difference.low, below.mayHold), b.either(difference.high, below.mayFail)};
    // As unsigned numbers, negative ones are the largest.
    if (isBoundLeft)
      result = {result.mayFail, result.mayHold};
    return unless(isNatural, result);
  }
  default:
    break;
  }

  // If both operands share an atom, or cannot be equal, their difference is more precise than their intervals.
  bool isEquality = predicate == Predicate::eq || predicate == Predicate::ne;
  bool areKnown = !lhs.isValid.isConstant(0) && !rhs.isValid.isConstant(0);
  bool isJoint = areKnown && (AffineSpace::areRelated(lhs.form, rhs.form) || isEquality);
  AffineValue difference = isJoint ? space.combine(lhs, 1, rhs, -1) : AffineValue::unknown();
  Coverage less, equal, more; // lhs < rhs, ...
  less = {b.isLess(x.low, y.high), b.isAtMost(y.low, x.high)};
  more = {b.isLess(y.low, x.high), b.isAtMost(x.low, y.high)};
  auto differ = [&](const Coverage &less, const Coverage &more) { return b.either(less.mayHold, more.mayHold); };
  equal = {both(b.isAtMost(x.low, y.high), b.isAtMost(y.low, x.high)), differ(less, more)};
  if (!difference.isValid.isConstant(0)) {
    Interval d = space.bounds(difference.form);
    StagedInt isUnknown = b.negate(difference.isValid);
    auto refine = [&](Coverage &coverage, StagedInt mayHold, StagedInt mayFail) {
      coverage.mayHold = both(coverage.mayHold, b.either(isUnknown, mayHold));
      coverage.mayFail = both(coverage.mayFail, b.either(isUnknown, mayFail));
    };
    refine(less, b.isLess(d.low, 0), b.isAtMost(0, d.high));
    refine(more, b.isLess(0, d.high), b.isAtMost(d.low, 0));
    StagedInt meets = both(b.isAtMost(d.low, 0), b.isAtMost(0, d.high));
    auto [modulus, residue] = space.congruence(difference.form);
    if (std::abs(modulus) > 1)
      meets = both(meets, b.isEqual(b.mod(residue, std::abs(modulus)), 0));
    refine(equal, meets, b.either(b.isLess(d.low, 0), b.isLess(0, d.high)));
  }
  auto opposite = [](const Coverage &coverage) { return Coverage{coverage.mayFail, coverage.mayHold}; };
  switch (predicate) {
  case Predicate::slt:
    return less;
  case Predicate::sle:
    return opposite(more);
  case Predicate::sgt:
    return more;
  case Predicate::sge:
    return opposite(less);
  case Predicate::eq:
    return equal;
  case Predicate::ne:
    return opposite(equal);
  default:
    return {};
  }
}

Coverage saccade::attn::analyzeMask(Region &mask, const MaskBox &box, MaskInputs &inputs, StagedIntBuilder &b) {
  if (mask.empty())
    return {1, 0};
  MaskEvaluator evaluator(mask, box, inputs, b);
  return evaluator.condition(cast<YieldOp>(mask.front().getTerminator()).getOperand());
}
