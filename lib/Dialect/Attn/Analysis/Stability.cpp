//===- Stability.cpp - Proof that row maxima are finite ------------------------===//
#include "saccade/Dialect/Attn/Analysis/Stability.h"
#include "saccade/Dialect/Attn/Analysis/MaskProof.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace saccade::attn;

static constexpr llvm::StringLiteral guarded = "guarded", inOrder = "in_order", everyStep = "every_step";

/// Whether scores can be multiplied by log2(e) without overflow.
static bool isFinite(FloatRange scores, FloatType type) {
  bool lost;
  APFloat largest = APFloat::getLargest(type.getFloatSemantics());
  largest.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
  double limit = largest.convertToDouble() / 2;
  return -limit <= scores.low && scores.high <= limit;
}

/// `seesFirstKey` is the part of a mask's proof that tells whether every query attends to the first key.
static Stability analyze(ScoringOpInterface op, bool MaskProof::*seesFirstKey) {
  Stability result;
  result.scores = analyzeScore(op.getScore());
  if (!op.hasSoftmax()) {
    result.finiteMax = FiniteMax::EveryStep;
    result.reason = "a normalizer takes no maximum";
    return result;
  }
  if (!isFinite(result.scores, op.getScoreType())) {
    result.reason = op.getScore().empty() ? "Q·Kᵀ may overflow to −∞" : "scores are unbounded and may be −∞";
    if (!op.getMask().empty() && !(proveMask(op).*seesFirstKey))
      result.reason += ", and a query may attend to no key of a step";
    return result;
  }
  std::string bounds;
  llvm::raw_string_ostream(bounds) << llvm::format("scores are in [%.4g, %.4g]", result.scores.low, result.scores.high);
  if (op.getMask().empty()) {
    result.finiteMax = FiniteMax::EveryStep;
    result.reason = bounds + ", and every query attends to every key";
  } else if (proveMask(op).*seesFirstKey) {
    result.finiteMax = FiniteMax::InOrder;
    result.reason = bounds + ", and every query attends to the first key";
  } else {
    result.reason = bounds + ", but a query may attend to no key of a step";
  }
  return result;
}

Stability saccade::attn::analyzeStability(AttentionOp op) {
  return analyze(cast<ScoringOpInterface>(op.getOperation()), &MaskProof::seesFirstKey);
}

Stability saccade::attn::analyzeStability(AccumulateOp op) {
  return analyze(cast<ScoringOpInterface>(op.getOperation()), &MaskProof::seesPositionZero);
}

static FiniteMax parse(StringAttr proved) {
  if (!proved || proved == guarded)
    return FiniteMax::Never;
  return proved == everyStep ? FiniteMax::EveryStep : FiniteMax::InOrder;
}

static StringAttr print(MLIRContext *context, FiniteMax finiteMax) {
  StringRef text = finiteMax == FiniteMax::Never ? guarded : finiteMax == FiniteMax::InOrder ? inOrder : everyStep;
  return StringAttr::get(context, text);
}

FiniteMax saccade::attn::getFiniteMax(AttentionOp op) { return parse(op->getAttrOfType<StringAttr>(stabilityAttr)); }
FiniteMax saccade::attn::getFiniteMax(AccumulateOp op) { return parse(op->getAttrOfType<StringAttr>(finiteMaxAttr)); }

void saccade::attn::setFiniteMax(AttentionOp op, FiniteMax finiteMax) {
  op->setAttr(stabilityAttr, print(op.getContext(), finiteMax));
}

void saccade::attn::setFiniteMax(AccumulateOp op, FiniteMax finiteMax) {
  if (finiteMax == FiniteMax::Never)
    op->removeAttr(finiteMaxAttr);
  else
    op->setAttr(finiteMaxAttr, print(op.getContext(), finiteMax));
}
