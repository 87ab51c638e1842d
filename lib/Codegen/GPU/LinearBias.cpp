//===- LinearBias.cpp - Score regions that add a linear bias ------------------===//
#include "LinearBias.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

LinearBias::LinearBias(ScoringOpInterface op) : op(op), known(op.getScore(), /*numbers=*/1) {}

PositionRegion LinearBias::region() const {
  ScoringOpInterface scoring = op;
  return {scoring, scoring.getScore(), TanhMethod::Exact};
}

/// Whether x is the same for all positions of a head.
bool LinearBias::isUniform(Value x) const {
  PositionDependence dependence = known.of(x);
  return dependence.isKnown && !dependence.usesQuery && !dependence.usesKey;
}

/// Whether x is linear in the key, with a uniform slope.
bool LinearBias::isLinear(Value x) const {
  PositionDependence dependence = known.of(x);
  if (!dependence.isKnown)
    return false;
  if (!dependence.usesKey)
    return true;
  Operation *op = x.getDefiningOp();
  if (isa_and_present<arith::SIToFPOp>(op)) {
    // 32 bits have all positions and their differences, 64 bits also multiples of them.
    Type type = op->getOperand(0).getType();
    int64_t maxCoefficient = type.isInteger(64) ? 256 : type.isInteger(32) ? 1 : 0;
    PositionDependence number = known.of(op->getOperand(0));
    return number.isLinear && maxCoefficient > 0 && std::abs(number.key) <= maxCoefficient &&
           std::abs(number.query) <= maxCoefficient;
  }
  if (!x.getType().isF32())
    return false;
  if (isa_and_present<arith::NegFOp>(op))
    return isLinear(op->getOperand(0));
  if (isa_and_present<arith::AddFOp, arith::SubFOp>(op))
    return isLinear(op->getOperand(0)) && isLinear(op->getOperand(1));
  if (isa_and_present<arith::MulFOp>(op))
    return (isLinear(op->getOperand(0)) && isUniform(op->getOperand(1))) ||
           (isUniform(op->getOperand(0)) && isLinear(op->getOperand(1)));
  return false;
}

std::optional<LinearBias> LinearBias::find(ScoringOpInterface op) {
  if (op.getScore().empty())
    return std::nullopt;
  LinearBias result(op);
  Value sum = getRegionArguments(op.getScore(), /*numbers=*/1).score;
  while (sum.hasOneUse()) {
    OpOperand &use = *sum.use_begin();
    Operation *user = use.getOwner();
    if (user->hasTrait<OpTrait::IsTerminator>())
      return result;
    bool isDifference = isa<arith::SubFOp>(user);
    if (!isa<arith::AddFOp>(user) && !(isDifference && use.getOperandNumber() == 0))
      return std::nullopt;
    Value term = user->getOperand(1 - use.getOperandNumber());
    if (!term.getType().isF32() || !result.isLinear(term))
      return std::nullopt;
    result.terms.push_back({term, isDifference});
    sum = user->getResult(0);
  }
  return std::nullopt;
}

/// x + y, or x − y. Null means 0.
static Value addTerm(Emitter &e, Value x, Value y, bool isSubtracted) {
  if (!y)
    return x;
  if (!x)
    return isSubtracted ? Value(arith::NegFOp::create(e.b, e.loc, y)) : y;
  return permitFusion(isSubtracted ? e.subf(x, y) : e.addf(x, y));
}

Value LinearBias::evaluate(Emitter &e, RowPosition query, Value key) const {
  IRMapping values = region().emit(e, e.scalar(0.0), query, key, uniform);
  Value sum;
  for (auto [value, isSubtracted] : terms)
    sum = addTerm(e, sum, values.lookupOrDefault(value), isSubtracted);
  return sum ? sum : e.scalar(0.0);
}

bool LinearBias::isOfDistance() const {
  return llvm::all_of(terms, [&](const Term &term) { return known.of(term.value).isTerm(); });
}

Value LinearBias::prepare(Emitter &e, RowPosition anyQuery) {
  ScoringOpInterface scoring = op;
  IRMapping values = region().emit(e, e.scalar(0.0), anyQuery, e.index(0));
  for (Operation &original : scoring.getScore().front().without_terminator())
    if (original.getNumResults() == 1 && isUniform(original.getResult(0)))
      uniform.map(original.getResult(0), values.lookup(original.getResult(0)));
  Value sum;
  for (auto [value, isSubtracted] : terms)
    sum = addTerm(e, sum, emitSlope(e, value, values), isSubtracted);
  return sum;
}

/// The slope of a linear value; null if it does not depend on the key.
Value LinearBias::emitSlope(Emitter &e, Value x, const IRMapping &values) const {
  if (!dependsOnKey(x))
    return {};
  Operation *op = x.getDefiningOp();
  if (isa<arith::SIToFPOp>(op)) {
    int64_t coefficient = known.of(op->getOperand(0)).key;
    return coefficient ? e.scalar(static_cast<double>(coefficient)) : Value();
  }
  if (isa<arith::NegFOp>(op))
    return addTerm(e, Value(), emitSlope(e, op->getOperand(0), values), /*isSubtracted=*/true);
  if (isa<arith::MulFOp>(op)) {
    unsigned variable = isUniform(op->getOperand(1)) ? 0 : 1;
    Value slope = emitSlope(e, op->getOperand(variable), values);
    return slope ? permitFusion(e.mulf(slope, values.lookupOrDefault(op->getOperand(1 - variable)))) : slope;
  }
  return addTerm(e, emitSlope(e, op->getOperand(0), values), emitSlope(e, op->getOperand(1), values),
                 isa<arith::SubFOp>(op));
}
