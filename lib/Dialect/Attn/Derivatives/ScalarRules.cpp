//===- ScalarRules.cpp - Partial derivatives of scalar ops --------------------===//
//
// A row for each op. Rules use the result of an op where that saves a call of a function.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Derivatives/ScalarRules.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include <numbers>

using namespace mlir;
using namespace saccade::attn;

namespace {

/// An emitted float with arithmetic, so that rules read like formulas.
struct Number {
  OpBuilder *b;
  Location loc;
  Value value;

  Number constant(double number) const {
    return {b, loc, arith::ConstantOp::create(*b, loc, b->getFloatAttr(value.getType(), number))};
  }
  template <typename OpTy> Number call() const { return {b, loc, OpTy::create(*b, loc, value)}; }
  template <typename OpTy> Number with(Number other) const {
    return {b, loc, OpTy::create(*b, loc, value, other.value)};
  }
  Value compare(arith::CmpFPredicate predicate, Number other) const {
    return arith::CmpFOp::create(*b, loc, predicate, value, other.value);
  }
  Value compare(arith::CmpFPredicate predicate, double other) const { return compare(predicate, constant(other)); }
};

Number operator+(Number x, Number y) { return x.with<arith::AddFOp>(y); }
Number operator-(Number x, Number y) { return x.with<arith::SubFOp>(y); }
Number operator*(Number x, Number y) { return x.with<arith::MulFOp>(y); }
Number operator/(Number x, Number y) { return x.with<arith::DivFOp>(y); }
Number operator-(Number x) { return x.call<arith::NegFOp>(); }
Number operator+(double x, Number y) { return y.constant(x) + y; }
Number operator-(double x, Number y) { return y.constant(x) - y; }
Number operator-(Number x, double y) { return x - x.constant(y); }
Number operator*(double x, Number y) { return y.constant(x) * y; }
Number operator/(double x, Number y) { return y.constant(x) / y; }
Number sqrt(Number x) { return x.call<math::SqrtOp>(); }
Number exp(Number x) { return x.call<math::ExpOp>(); }
Number choose(Value condition, Number x, double y) {
  return {x.b, x.loc, arith::SelectOp::create(*x.b, x.loc, condition, x.value, x.constant(y).value)};
}

/// The emitted operands and results of an op, widened to the type of derivatives.
struct Emitted {
  OpBuilder *b;
  Operation *op;
  const IRMapping *values;

  Number widened(Value value) const {
    Value emitted = values->lookupOrDefault(value);
    Type type = getScoreType(emitted.getType());
    if (emitted.getType() != type)
      emitted = arith::ExtFOp::create(*b, op->getLoc(), type, emitted);
    return {b, op->getLoc(), emitted};
  }
  Number x(unsigned operand = 0) const { return widened(op->getOperand(operand)); }
  Number y(unsigned result = 0) const { return widened(op->getResult(result)); }
  Value condition() const { return values->lookupOrDefault(op->getOperand(0)); }
};

using Rule = Partial (*)(const Emitted &);
using Predicate = arith::CmpFPredicate;

Partial one(const Emitted &) { return {Partial::One, {}, {}}; }
Partial minusOne(const Emitted &) { return {Partial::MinusOne, {}, {}}; }
Partial factor(Number number) { return {Partial::Factor, number.value, {}}; }
Partial factorIf(Value condition, Number number) { return {Partial::Factor, number.value, Condition{condition}}; }
Partial oneIf(Value condition, bool holds = true) { return {Partial::One, {}, Condition{condition, holds}}; }

/// Extremum that propagates NaN: the operand that is not worse, and half each if they are equal.
template <Predicate notWorse, unsigned self> Partial extremum(const Emitted &e) {
  Number mine = e.x(self), other = e.x(1 - self);
  return factorIf(mine.compare(notWorse, other), choose(mine.compare(Predicate::ONE, other), mine.constant(1), 0.5));
}

/// Whether the extremum that ignores NaN is the first operand.
template <Predicate better> Value isFirst(const Emitted &e) {
  Value isBetter = e.x(0).compare(better, e.x(1)), isOnly = e.x(1).compare(Predicate::UNO, e.x(1));
  return arith::OrIOp::create(*e.b, e.op->getLoc(), isBetter, isOnly);
}

Number circle(Number x, Number y) { return x * x + y * y; }
/// 1 − x², without cancellation near ±1.
Number oneMinusSquare(Number x) { return (1 - x) * (1 + x); }
Number sign(Number x) { return x.constant(1).with<math::CopySignOp>(x); }
Value isNotZero(Number x) { return x.compare(Predicate::UNE, 0); }

/// The rules of an op: for each result one for each operand; null where the derivative is 0.
using Rules = SmallVector<SmallVector<Rule, 3>, 1>;

class Table {
public:
  Table() {
    add<arith::AddFOp>({one, one});
    add<arith::SubFOp>({one, minusOne});
    add<arith::MulFOp>(
        {[](const Emitted &e) { return factor(e.x(1)); }, [](const Emitted &e) { return factor(e.x()); }});
    add<arith::DivFOp>({[](const Emitted &e) { return factor(1 / e.x(1)); },
                        [](const Emitted &e) { return factor(-(e.y() / e.x(1))); }});
    add<arith::RemFOp>({one, [](const Emitted &e) { return factor(-(e.x() / e.x(1)).call<math::TruncOp>()); }});
    add<arith::NegFOp>({minusOne});
    add<arith::MaximumFOp>({extremum<Predicate::UGE, 0>, extremum<Predicate::UGE, 1>});
    add<arith::MinimumFOp>({extremum<Predicate::ULE, 0>, extremum<Predicate::ULE, 1>});
    add<arith::MaxNumFOp>({[](const Emitted &e) { return oneIf(isFirst<Predicate::OGE>(e)); },
                           [](const Emitted &e) { return oneIf(isFirst<Predicate::OGE>(e), false); }});
    add<arith::MinNumFOp>({[](const Emitted &e) { return oneIf(isFirst<Predicate::OLE>(e)); },
                           [](const Emitted &e) { return oneIf(isFirst<Predicate::OLE>(e), false); }});
    add<arith::SelectOp>({nullptr, [](const Emitted &e) { return oneIf(e.condition()); },
                          [](const Emitted &e) { return oneIf(e.condition(), false); }});
    add<arith::ExtFOp>({one});
    add<arith::TruncFOp>({one});

    add<math::AbsFOp>({[](const Emitted &e) { return factorIf(isNotZero(e.x()), sign(e.x())); }});
    add<math::CopySignOp>(
        {[](const Emitted &e) { return factorIf(isNotZero(e.x()), sign(e.x()) * sign(e.x(1))); }, nullptr});
    add<math::FmaOp>(
        {[](const Emitted &e) { return factor(e.x(1)); }, [](const Emitted &e) { return factor(e.x()); }, one});
    for (StringRef name :
         {math::CeilOp::getOperationName(), math::FloorOp::getOperationName(), math::RoundOp::getOperationName(),
          math::RoundEvenOp::getOperationName(), math::TruncOp::getOperationName()})
      rules[name] = {{nullptr}};

    add<math::ExpOp>({[](const Emitted &e) { return factor(e.y()); }});
    add<math::Exp2Op>({[](const Emitted &e) { return factor(std::numbers::ln2 * e.y()); }});
    add<math::ExpM1Op>({[](const Emitted &e) { return factor(1 + e.y()); }});
    add<math::LogOp>({[](const Emitted &e) { return factor(1 / e.x()); }});
    add<math::Log2Op>({[](const Emitted &e) { return factor(std::numbers::log2e / e.x()); }});
    add<math::Log10Op>({[](const Emitted &e) { return factor(std::numbers::log10e / e.x()); }});
    add<math::Log1pOp>({[](const Emitted &e) { return factor(1 / (1 + e.x())); }});
    add<math::SqrtOp>({[](const Emitted &e) { return factor(0.5 / e.y()); }});
    add<math::RsqrtOp>({[](const Emitted &e) { return factor(-0.5 * (e.y() / e.x())); }});
    add<math::CbrtOp>({[](const Emitted &e) { return factor((1.0 / 3) / (e.y() * e.y())); }});
    // As PyTorch: the derivative is 0 with respect to x for y = 0, and with respect to y for x = 0 and y ≥ 0.
    add<math::PowFOp>(
        {[](const Emitted &e) { return factorIf(isNotZero(e.x(1)), e.x(1) * e.x().with<math::PowFOp>(e.x(1) - 1)); },
         [](const Emitted &e) {
           Value isZero = e.x().compare(Predicate::OEQ, 0), isNotLess = e.x(1).compare(Predicate::OGE, 0);
           Value isFlat = arith::AndIOp::create(*e.b, e.op->getLoc(), isZero, isNotLess);
           return Partial{Partial::Factor, (e.y() * e.x().call<math::LogOp>()).value, Condition{isFlat, false}};
         }});

    add<math::SinOp>({[](const Emitted &e) { return factor(e.x().call<math::CosOp>()); }});
    add<math::CosOp>({[](const Emitted &e) { return factor(-e.x().call<math::SinOp>()); }});
    rules[math::SincosOp::getOperationName()] = {{[](const Emitted &e) { return factor(e.y(1)); }},
                                                 {[](const Emitted &e) { return factor(-e.y(0)); }}};
    add<math::TanOp>({[](const Emitted &e) { return factor(1 + e.y() * e.y()); }});
    add<math::AsinOp>({[](const Emitted &e) { return factor(1 / sqrt(oneMinusSquare(e.x()))); }});
    add<math::AcosOp>({[](const Emitted &e) { return factor(-1 / sqrt(oneMinusSquare(e.x()))); }});
    add<math::AtanOp>({[](const Emitted &e) { return factor(1 / (1 + e.x() * e.x())); }});
    add<math::Atan2Op>({[](const Emitted &e) { return factor(e.x(1) / circle(e.x(), e.x(1))); },
                        [](const Emitted &e) { return factor(-(e.x() / circle(e.x(), e.x(1)))); }});
    add<math::SinhOp>({[](const Emitted &e) { return factor(e.x().call<math::CoshOp>()); }});
    add<math::CoshOp>({[](const Emitted &e) { return factor(e.x().call<math::SinhOp>()); }});
    add<math::TanhOp>({[](const Emitted &e) { return factor(oneMinusSquare(e.y())); }});
    add<math::AsinhOp>({[](const Emitted &e) { return factor(1 / sqrt(1 + e.x() * e.x())); }});
    add<math::AcoshOp>({[](const Emitted &e) { return factor(1 / sqrt((e.x() - 1) * (1 + e.x()))); }});
    add<math::AtanhOp>({[](const Emitted &e) { return factor(1 / oneMinusSquare(e.x())); }});
    add<math::ErfOp>({[](const Emitted &e) { return factor(2 * std::numbers::inv_sqrtpi * exp(-(e.x() * e.x()))); }});
    add<math::ErfcOp>({[](const Emitted &e) { return factor(-2 * std::numbers::inv_sqrtpi * exp(-(e.x() * e.x()))); }});
  }

  const Rules *find(StringRef name) const {
    auto it = rules.find(name);
    return it == rules.end() ? nullptr : &it->second;
  }
  auto names() const { return rules.keys(); }

private:
  template <typename OpTy> void add(SmallVector<Rule, 3> ofOperands) {
    rules[OpTy::getOperationName()] = {std::move(ofOperands)};
  }
  llvm::StringMap<Rules> rules;
};

const Table &table() {
  static const Table instance;
  return instance;
}

Rule findRule(OpResult result, unsigned operand) {
  const Rules *rules = table().find(result.getOwner()->getName().getStringRef());
  return (*rules)[result.getResultNumber()][operand];
}

} // namespace

bool saccade::attn::hasScalarRule(Operation *op) {
  // The rules are for floats; select has results of any type.
  return table().find(op->getName().getStringRef()) &&
         llvm::all_of(op->getResultTypes(), [](Type type) { return isa<FloatType>(type); });
}

bool saccade::attn::hasPartial(OpResult result, unsigned operand) { return findRule(result, operand) != nullptr; }

Partial saccade::attn::emitPartial(OpBuilder &b, OpResult result, unsigned operand, const IRMapping &values) {
  return findRule(result, operand)(Emitted{&b, result.getOwner(), &values});
}

SmallVector<StringRef> saccade::attn::getScalarRuleNames() {
  SmallVector<StringRef> names(table().names());
  llvm::sort(names);
  return names;
}
