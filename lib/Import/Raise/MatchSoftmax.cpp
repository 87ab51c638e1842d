//===- MatchSoftmax.cpp - Match the variants of softmax -------------------===//
//
// Softmax is invariant to subtracting a value that is the same for all keys. Terms of the exponent that do not depend
// on the key, such as the maximum, are therefore split off, and the rest must be equal in the exponential and in the
// sum.
//
//===----------------------------------------------------------------------===//
#include "MatchSoftmax.h"
#include "FloatFacts.h"
#include "SplitMask.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>

using namespace mlir;
using namespace saccade::raise;

namespace {

/// A term that does not depend on the key, and whether it is subtracted.
using Shift = std::pair<Node, bool>;

/// An exponential, with its exponent split into terms that depend on the key and terms that do not.
struct Exponential {
  Node score;                   ///< the part of the exponent that depends on the key
  SmallVector<Shift, 2> shifts; ///< the other terms
  Node condition = nullptr;     ///< if set, the exponential is 0 unless this holds
};

class Matcher {
public:
  Matcher(Graph &graph, Tracer &tracer, unsigned key) : graph(graph), tracer(tracer), key(key) {}

  std::optional<SoftmaxMatch> match(Node node) {
    if (node->kind == Expr::Softmax && node->key == key)
      return SoftmaxMatch{node, (*node)[0], node->value.getDefiningOp()};
    if (node->is("arith.divf") && (*node)[0]->dependsOn(key) && !(*node)[1]->dependsOn(key))
      return matchQuotient(node, (*node)[0], (*node)[1]);
    return matchLogarithm(node);
  }

private:
  std::optional<Exponential> readExponential(Node node);
  Node splitExponent(Node exponent, Exponential &result);
  std::optional<Exponential> readSum(Node leaf, Operation *&anchor);
  std::optional<SoftmaxMatch> matchQuotient(Node node, Node numerator, Node denominator);
  std::optional<SoftmaxMatch> matchLogarithm(Node node);
  Node dropSumGuards(Node sum, const Exponential &exponential);
  bool hasMaximum(const Exponential &exponential);
  const Shift *findOwnMaximum(const Exponential &exponential, double &start);
  Node maskedScore(const Exponential &exponential, Node score);
  Node guardedScore(const Exponential &exponential);

  Graph &graph;
  Tracer &tracer;
  unsigned key;
};

/// Moves terms of `exponent` that do not depend on the key into the shifts of `result`.
Node Matcher::splitExponent(Node exponent, Exponential &result) {
  // (s − m) · c is s · c − m · c.
  if (exponent->is("arith.mulf") && (*exponent)[1]->kind == Expr::Number &&
      ((*exponent)[0]->is("arith.subf") || (*exponent)[0]->is("arith.addf"))) {
    Exponential inner;
    Node score = splitExponent((*exponent)[0], inner);
    for (auto [shift, isSubtracted] : inner.shifts)
      result.shifts.push_back({graph.product(shift, (*exponent)[1]), isSubtracted});
    return graph.product(score, (*exponent)[1]);
  }
  Node score = nullptr;
  for (auto [addend, isSubtracted] : addends(exponent)) {
    if (!addend->dependsOn(key)) {
      result.shifts.push_back({addend, isSubtracted});
      continue;
    }
    Node term = isSubtracted ? graph.product(addend, graph.number(-1)) : addend;
    score = score ? graph.sum(score, term) : term;
  }
  return score ? score : graph.number(0);
}

std::optional<Exponential> Matcher::readExponential(Node node) {
  Exponential result;
  // Masking after the exponential: a weight of 0 is a score of −∞.
  auto addCondition = [&](Node condition) {
    result.condition = result.condition ? graph.both(result.condition, condition) : condition;
  };
  while (true) {
    if (node->is("arith.select") && (*node)[2]->isNumber(0)) {
      addCondition((*node)[0]);
      node = (*node)[1];
    } else if (node->is("arith.select") && (*node)[1]->isNumber(0)) {
      addCondition(graph.negated((*node)[0]));
      node = (*node)[2];
    } else if (node->is("arith.mulf") && (*node)[0]->is("arith.uitofp") && (*(*node)[0])[0]->type.isInteger(1)) {
      addCondition((*(*node)[0])[0]);
      node = (*node)[1];
    } else if (node->is("arith.mulf") && (*node)[1]->is("arith.uitofp") && (*(*node)[1])[0]->type.isInteger(1)) {
      addCondition((*(*node)[1])[0]);
      node = (*node)[0];
    } else {
      break;
    }
  }
  if (!node->is("math.exp") && !node->is("math.exp2"))
    return std::nullopt;
  Node exponent = (*node)[0];
  if (node->is("math.exp2"))
    exponent = graph.product(exponent, graph.number(std::log(2.0)));
  result.score = splitExponent(exponent, result);
  return result;
}

std::optional<Exponential> Matcher::readSum(Node leaf, Operation *&anchor) {
  Node summand = tracer.reduced(leaf, {"arith.addf"}, key, &anchor);
  if (!summand || !isZero(cast<linalg::LinalgOp>(anchor).getDpsInits()[0]))
    return std::nullopt;
  return readExponential(summand);
}

/// If `select` replaces a sum of 0 by another value, returns the sum; else null.
static Node guardedFromZero(Node select) {
  Node condition = (*select)[0];
  if (!condition->is("arith.cmpf") || !(*condition)[1]->isNumber(0))
    return nullptr;
  using P = arith::CmpFPredicate;
  P predicate = cast<arith::CmpFPredicateAttr>(condition->attributes.get("predicate")).getValue();
  bool isZero = predicate == P::OEQ || predicate == P::UEQ;
  bool isOther = predicate == P::ONE || predicate == P::UNE || predicate == P::OGT || predicate == P::UGT;
  Node sum = isZero ? (*select)[2] : isOther ? (*select)[1] : nullptr;
  return sum && sum == (*condition)[0] ? sum : nullptr;
}

/// Removes a guard against a sum of 0. A sum over all keys is at least 1 if the maximum of its exponents is subtracted,
/// because the exponential of the maximum is 1.
Node Matcher::dropSumGuards(Node sum, const Exponential &exponential) {
  if (sum->is("arith.select"))
    if (Node guarded = guardedFromZero(sum))
      return guarded;
  bool isGuard = sum->is("arith.addf") || sum->is("arith.maximumf") || sum->is("arith.maxnumf");
  double start = 0;
  if (isGuard && (*sum)[1]->kind == Expr::Number && std::abs((*sum)[1]->number) <= 1e-6 && !exponential.condition &&
      findOwnMaximum(exponential, start) && start <= largestSentinel)
    return (*sum)[0];
  return sum;
}

/// The shift that subtracts the maximum of the exponent, and the value that the maximum starts from.
const Shift *Matcher::findOwnMaximum(const Exponential &exponential, double &start) {
  for (const Shift &shift : exponential.shifts) {
    auto [node, isSubtracted] = shift;
    Node factor = graph.number(1);
    if (node->is("arith.mulf") && (*node)[1]->kind == Expr::Number && (*node)[1]->number > 0) {
      factor = (*node)[1];
      node = (*node)[0];
    }
    Operation *reduction = nullptr;
    Node each = isSubtracted ? tracer.reduced(node, {"arith.maximumf", "arith.maxnumf"}, key, &reduction) : nullptr;
    if (!each)
      continue;
    Exponential inner{graph.product(each, factor), {}};
    if (inner.score != exponential.score)
      inner.score = splitExponent(inner.score, inner);
    SmallVector<Shift> expected{ArrayRef(exponential.shifts)}, found{ArrayRef(inner.shifts)};
    found.push_back(shift);
    llvm::sort(expected);
    llvm::sort(found);
    std::optional<double> number = getFilledNumber(cast<linalg::LinalgOp>(reduction).getDpsInits()[0]);
    if (inner.score != exponential.score || expected != found || !number)
      continue;
    start = *number;
    return &shift;
  }
  return nullptr;
}

bool Matcher::hasMaximum(const Exponential &exponential) {
  return llvm::any_of(exponential.shifts, [&](auto shift) {
    bool found = false;
    forEachNode(shift.first, [&](Node node) {
      found |= node->kind == Expr::Element && tracer.reduced(node, {"arith.maximumf", "arith.maxnumf"}, key) != nullptr;
    });
    return found && shift.second;
  });
}

Node Matcher::maskedScore(const Exponential &exponential, Node score) {
  if (!exponential.condition)
    return score;
  return graph.apply("arith.select", graph.real(), {exponential.condition, score, graph.number(-INFINITY)});
}

/// The masked score with all shifts except the maximum. If such a term is −∞, the row has no keys: a guard makes its
/// weights 0.
Node Matcher::guardedScore(const Exponential &exponential) {
  double start;
  const Shift *maximum = findOwnMaximum(exponential, start);
  Node score = exponential.score;
  for (const Shift &shift : exponential.shifts)
    if (&shift != maximum)
      score = graph.apply(shift.second ? "arith.subf" : "arith.addf", graph.real(), {score, shift.first});
  return maskedScore(exponential, score);
}

std::optional<SoftmaxMatch> Matcher::matchQuotient(Node node, Node numerator, Node denominator) {
  std::optional<Exponential> top = readExponential(numerator);
  if (!top)
    return std::nullopt;
  Node sum = dropSumGuards(denominator, *top);
  Operation *anchor = nullptr;
  std::optional<Exponential> bottom = readSum(sum, anchor);
  if (!bottom || top->score != bottom->score || top->shifts != bottom->shifts || top->condition != bottom->condition)
    return std::nullopt;
  bool isGuarded = sum != denominator;
  Node guarded = guardedScore(*top), score = isGuarded ? guarded : maskedScore(*top, top->score);
  return SoftmaxMatch{node, score, anchor, guarded, hasMaximum(*top), isGuarded};
}

/// exp(s − m − log Σ exp(s − m)), with or without m.
std::optional<SoftmaxMatch> Matcher::matchLogarithm(Node node) {
  std::optional<Exponential> top = readExponential(node);
  if (!top)
    return std::nullopt;
  // A shift may itself be a sum, m + log Σ.
  SmallVector<std::pair<Node, bool>> shifts;
  for (auto [shift, isSubtracted] : top->shifts)
    for (auto [addend, isInner] : addends(shift))
      shifts.push_back({addend, isSubtracted != isInner});
  auto logarithm = llvm::find_if(shifts, [](auto shift) { return shift.first->is("math.log") && shift.second; });
  if (logarithm == shifts.end())
    return std::nullopt;
  Operation *anchor = nullptr;
  std::optional<Exponential> bottom = readSum((*logarithm->first)[0], anchor);
  if (!bottom || top->score != bottom->score || top->condition != bottom->condition)
    return std::nullopt;
  shifts.erase(logarithm);
  SmallVector<std::pair<Node, bool>> below(ArrayRef(bottom->shifts));
  llvm::sort(shifts);
  llvm::sort(below);
  if (shifts != below)
    return std::nullopt;
  return SoftmaxMatch{node, maskedScore(*top, top->score), anchor, guardedScore(*bottom), hasMaximum(*bottom)};
}

} // namespace

std::optional<SoftmaxMatch> saccade::raise::findSoftmax(Graph &graph, Tracer &tracer, Node weight, unsigned key) {
  Matcher matcher(graph, tracer, key);
  SmallVector<Node> todo = {weight};
  DenseSet<Node> seen;
  while (!todo.empty()) {
    Node node = todo.pop_back_val();
    if (!node->dependsOn(key) || !seen.insert(node).second)
      continue;
    if (std::optional<SoftmaxMatch> match = matcher.match(node))
      return match;
    todo.append(node->operands.begin(), node->operands.end());
  }
  return std::nullopt;
}

/// Whether `condition` holds if all scores of the row are −∞.
static bool testsForEmptyRow(Graph &graph, Tracer &tracer, Node condition, Node score, unsigned key) {
  bool isNegated = condition->is("arith.xori") && (*condition)[1]->kind == Expr::Integer;
  Node leaf = isNegated ? (*condition)[0] : condition;
  Node each = tracer.reduced(leaf, {isNegated ? StringRef("arith.ori") : StringRef("arith.andi")}, key);
  if (!each)
    return false;
  if (isNegated)
    each = graph.negated(each);
  bool isInverted = each->is("arith.xori");
  Node comparison = isInverted ? (*each)[0] : each;
  if (!comparison->is("arith.cmpf") || !llvm::is_contained(comparison->operands, score))
    return false;
  auto predicate = cast<arith::CmpFPredicateAttr>(comparison->attributes.get("predicate")).getValue();
  bool isEqual = predicate == arith::CmpFPredicate::OEQ || predicate == arith::CmpFPredicate::UEQ;
  bool isUnequal = predicate == arith::CmpFPredicate::UNE || predicate == arith::CmpFPredicate::ONE;
  Node other = comparison->operands[comparison->operands[0] == score ? 1 : 0];
  return other->isNumber(-INFINITY) && (isInverted ? isUnequal : isEqual);
}

/// Whether an op of `weight` may give a number where `softmax` is NaN.
static bool comparesSoftmax(Node weight, Node softmax) {
  // Their results are no floats.
  static const StringRef tests[] = {"arith.cmpf", "arith.fptosi",  "arith.fptoui", "math.isnan",
                                    "math.isinf", "math.isfinite", "math.isnormal"};
  DenseSet<Node> depends;
  bool found = false;
  forEachNode(weight, [&](Node node) {
    if (node == softmax || llvm::any_of(node->operands, [&](Node each) { return depends.contains(each); }))
      depends.insert(node);
    found |= node != softmax && depends.contains(node) && node->kind == Expr::Apply &&
             (llvm::is_contained(tests, node->name) || floatFacts(node->name).dropsNaN);
  });
  return found;
}

Node saccade::raise::dropGuards(Graph &graph, Tracer &tracer, Node weight, SoftmaxMatch &match, unsigned key) {
  Node softmax = match.weight;
  auto isNaN = [&](Node condition) {
    if (condition->is("math.isnan"))
      return (*condition)[0] == softmax;
    if (!condition->is("arith.cmpf") || (*condition)[0] != softmax || (*condition)[1] != softmax)
      return false;
    auto predicate = cast<arith::CmpFPredicateAttr>(condition->attributes.get("predicate")).getValue();
    return predicate == arith::CmpFPredicate::UNO || predicate == arith::CmpFPredicate::UNE;
  };
  while (true) {
    Node guard = nullptr;
    forEachNode(weight, [&](Node node) {
      if (node->is("arith.select") && (*node)[1]->isNumber(0) && (*node)[2] == softmax &&
          (isNaN((*node)[0]) || testsForEmptyRow(graph, tracer, (*node)[0], match.score, key)))
        guard = node;
    });
    if (!guard)
      break;
    match.isGuarded = true;
    match.replacesNaN |= isNaN((*guard)[0]);
    if (match.guardedScore)
      match.score = match.guardedScore;
    weight = graph.replace(weight, guard, softmax);
  }
  // Terms that are the same for all keys, as −∞, make a row NaN, which such a weight may replace.
  if (comparesSoftmax(weight, softmax)) {
    match.replacesNaN = true;
    if (match.guardedScore)
      match.score = match.guardedScore;
  }
  return weight;
}

bool saccade::raise::sumsExponentials(linalg::LinalgOp op) {
  if (op.getNumReductionLoops() != 1 || op.getNumDpsInputs() != 1 || op.getNumDpsInits() != 1 || op.getNumLoops() > 60)
    return false;
  Graph graph(op.getContext(), op.getStaticLoopRanges());
  Tracer tracer(graph);
  SmallVector<unsigned> reductions;
  op.getReductionDims(reductions);
  AffineMap map = op.getIndexingMapMatchingResult(op->getResult(0));
  if (!map.isProjectedPermutation())
    return false;
  Node each = tracer.reduced(tracer.element(op->getResult(0), map.getResults()), {"arith.addf"}, reductions[0]);
  bool isExponential = false;
  if (each)
    forEachNode(each,
                [&](Node node) { isExponential |= node == each && (node->is("math.exp") || node->is("math.exp2")); });
  return isExponential;
}
