//===- SplitMask.cpp - Split masking off a score --------------------------===//
//
// Models mask a key by selecting −∞ for its score or by adding a large negative number. This converts such ops to
// conditions, from the outermost inwards.
//
//===----------------------------------------------------------------------===//
#include "SplitMask.h"
#include "Trace.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <cmath>

using namespace mlir;
using namespace saccade::raise;

/// Limit of a sentinel after scaling: its exponential is 0 compared to that of realistic scores.
static constexpr double largestScaled = -500;

static bool isTruthNumber(Node node) { return node->is("arith.uitofp") && (*node)[0]->type.isInteger(1); }

namespace {

class Splitter {
public:
  Splitter(Graph &graph, MaskedScore &result) : graph(graph), result(result) {}

  Node split(Node node);

private:
  Node splitSum(Node node);
  /// Whether a key with this score is masked after scaling.
  bool isSentinel(Node node) {
    return node->kind == Expr::Number && node->number <= largestSentinel && node->number * factor <= largestScaled;
  }
  Node hide(Node condition, Node sentinel, Node rest);
  Node readAddend(Node node);
  Node isVisible(Node factor, double sentinel);

  Graph &graph;
  MaskedScore &result;
  double factor = 1; ///< the scale of the current subexpression in the score
};

/// Records that only keys with `condition` are visible, and returns `rest`.
Node Splitter::hide(Node condition, Node sentinel, Node rest) {
  (std::isinf(sentinel->number) ? result.isInfinite : result.isFinite) = true;
  if (!llvm::is_contained(result.conditions, condition))
    result.conditions.push_back(condition);
  return rest;
}

Node Splitter::split(Node node) {
  while (true) {
    if (node->is("arith.select") && isSentinel((*node)[2])) {
      node = hide((*node)[0], (*node)[2], (*node)[1]);
    } else if (node->is("arith.select") && isSentinel((*node)[1])) {
      node = hide(graph.negated((*node)[0]), (*node)[1], (*node)[2]);
    } else if ((node->is("arith.maximumf") || node->is("arith.maxnumf")) && isSentinel((*node)[1])) {
      node = (*node)[0];
    } else if (node->is("arith.mulf") && (*node)[1]->kind == Expr::Number && (*node)[1]->number > 0) {
      double outside = factor;
      factor *= (*node)[1]->number;
      Node inner = split((*node)[0]);
      factor = outside;
      return graph.product(inner, (*node)[1]);
    } else if (node->is("arith.addf") || node->is("arith.subf")) {
      return splitSum(node);
    } else {
      return node;
    }
  }
}

/// The condition under which `factor` · sentinel does not mask the key: factor 0, where 1 masks. Null if intermediate
/// factors might mask partially.
Node Splitter::isVisible(Node factor, double sentinel) {
  Type i1 = IntegerType::get(graph.getContext(), 1);
  if (isTruthNumber(factor))
    return graph.negated((*factor)[0]);
  // 1 − m, where m is 1 for visible keys. m may be any value in between, but then 1 − m is at least 2⁻²⁴.
  bool isReversed = factor->is("arith.subf") && (*factor)[0]->isNumber(1);
  Node flag = isReversed ? (*factor)[1] : factor;
  // 1 − m is also 1 + m · −1.
  if (factor->is("arith.addf") && (*factor)[1]->isNumber(1) && (*factor)[0]->is("arith.mulf") &&
      (*(*factor)[0])[1]->isNumber(-1)) {
    isReversed = true;
    flag = (*(*factor)[0])[0];
  }
  Builder b(graph.getContext());
  if (!flag->is("arith.sitofp") && !flag->is("arith.uitofp")) {
    if (!isReversed || sentinel * this->factor * 0x1p-24 > largestScaled)
      return nullptr;
    auto predicate = arith::CmpFPredicateAttr::get(graph.getContext(), arith::CmpFPredicate::OGE);
    return graph.apply("arith.cmpf", i1, {flag, graph.number(1)},
                       b.getDictionaryAttr(b.getNamedAttr("predicate", predicate)));
  }
  auto predicate = arith::CmpIPredicateAttr::get(graph.getContext(), arith::CmpIPredicate::ne);
  Node isSet = graph.apply("arith.cmpi", i1, {(*flag)[0], graph.integer((*flag)[0]->type, 0)},
                           b.getDictionaryAttr(b.getNamedAttr("predicate", predicate)));
  return isReversed ? isSet : graph.negated(isSet);
}

/// Records the sentinels of an addend as conditions and returns the remaining addend.
Node Splitter::readAddend(Node node) {
  if (node->is("arith.select") && isSentinel((*node)[2]))
    return hide((*node)[0], (*node)[2], (*node)[1]);
  if (node->is("arith.select") && isSentinel((*node)[1]))
    return hide(graph.negated((*node)[0]), (*node)[1], (*node)[2]);
  if (node->is("arith.mulf") && isSentinel((*node)[1]) && std::isfinite((*node)[1]->number))
    if (Node condition = isVisible((*node)[0], (*node)[1]->number))
      return hide(condition, (*node)[1], graph.number(0));
  return node;
}

Node Splitter::splitSum(Node node) {
  SmallVector<Node> rest;
  for (auto [addend, isSubtracted] : addends(node)) {
    Node term = isSubtracted ? graph.product(addend, graph.number(-1)) : addend;
    Node remaining = readAddend(term);
    // A score may be masked before a bias is added, and more than once.
    rest.push_back(remaining == term && isSubtracted ? remaining : split(remaining));
  }
  // Masked scores may also have been multiplied by the mask, which is 1 for visible keys.
  Node sum = nullptr;
  for (Node term : rest) {
    if (term->is("arith.mulf"))
      for (auto [flag, other] : {std::pair((*term)[0], (*term)[1]), std::pair((*term)[1], (*term)[0])})
        if (isTruthNumber(flag) && llvm::is_contained(result.conditions, (*flag)[0])) {
          term = other;
          break;
        }
    sum = sum ? graph.sum(sum, term) : term;
  }
  return sum;
}

} // namespace

namespace {

/// Tells whether a score may be as large as the numbers that hide keys, for some keys of a row. Flags are not negative.
/// Tensors have no such elements, except reductions of masked scores.
class LargeNumbers {
public:
  explicit LargeNumbers(unsigned key) : key(key) {}

  /// Whether `sign` · `node` may be large.
  bool isIn(Node node, int sign) {
    if (!seen.insert({node, sign}).second)
      return false; // known, or the answer would have been found
    if (node->kind == Expr::Element && node->dependsOn(key)) {
      auto op = node->access.tensor.getDefiningOp<linalg::LinalgOp>();
      return op && op.getNumReductionLoops() != 0 && !isContraction(op);
    }
    if (node->kind == Expr::Number)
      return sign * node->number >= -largestSentinel;
    if (node->is("arith.addf") || node->is("arith.subf"))
      return isIn((*node)[0], sign) || isIn((*node)[1], node->is("arith.subf") ? -sign : sign);
    if (node->is("arith.mulf") && (*node)[1]->kind == Expr::Number) {
      int inner = (*node)[1]->number < 0 ? -sign : sign;
      return isIn((*node)[0], inner) || isIn((*node)[1], sign) || (!isFlag((*node)[0]) && isIn((*node)[1], -sign));
    }
    if (node->is("arith.select"))
      return isIn((*node)[1], sign) || isIn((*node)[2], sign);
    return llvm::any_of(node->operands, [&](Node each) { return each->isReal() && (isIn(each, 1) || isIn(each, -1)); });
  }

private:
  static bool isFlag(Node factor) {
    return (factor->is("arith.subf") && (*factor)[0]->isNumber(1)) || factor->is("arith.uitofp") ||
           factor->is("arith.sitofp");
  }

  unsigned key;
  DenseSet<std::pair<Node, int>> seen;
};

} // namespace

MaskedScore saccade::raise::splitMask(Graph &graph, Node score, unsigned key) {
  MaskedScore result;
  result.score = Splitter(graph, result).split(score);
  // A number of this size that is positive might make up for the one that hides a key.
  if (result.isFinite && LargeNumbers(key).isIn(result.score, 1))
    return {score, {}};
  return result;
}
