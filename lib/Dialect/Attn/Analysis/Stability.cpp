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

Stability saccade::attn::analyzeStability(AttentionOp op) {
  auto scoring = cast<ScoringOpInterface>(op.getOperation());
  Stability result;
  result.scores = analyzeScore(op.getScore());
  if (!isFinite(result.scores, scoring.getScoreType())) {
    result.reason = op.getScore().empty() ? "Q·Kᵀ may overflow to −∞" : "scores are unbounded and may be −∞";
    if (!op.getMask().empty() && !proveMask(scoring).seesFirstKey)
      result.reason += ", and a query may attend to no key of a step";
    return result;
  }
  std::string bounds;
  llvm::raw_string_ostream(bounds) << llvm::format("scores are in [%.4g, %.4g]", result.scores.low, result.scores.high);
  if (op.getMask().empty()) {
    result.finiteMax = FiniteMax::EveryStep;
    result.reason = bounds + ", and every query attends to every key";
  } else if (proveMask(scoring).seesFirstKey) {
    result.finiteMax = FiniteMax::InOrder;
    result.reason = bounds + ", and every query attends to the first key";
  } else {
    result.reason = bounds + ", but a query may attend to no key of a step";
  }
  return result;
}

FiniteMax saccade::attn::getFiniteMax(AttentionOp op) {
  auto proved = op->getAttrOfType<StringAttr>(stabilityAttr);
  if (!proved || proved == guarded)
    return FiniteMax::Never;
  return proved == everyStep ? FiniteMax::EveryStep : FiniteMax::InOrder;
}

void saccade::attn::setFiniteMax(AttentionOp op, FiniteMax finiteMax) {
  StringRef text = finiteMax == FiniteMax::Never ? guarded : finiteMax == FiniteMax::InOrder ? inOrder : everyStep;
  op->setAttr(stabilityAttr, StringAttr::get(op.getContext(), text));
}
