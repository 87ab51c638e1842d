//===- SplitMask.cpp - Split masking off a score --------------------------===//
//
// Models mask a key by selecting −∞ for its score or by adding a large negative number. This converts such ops to
// conditions, from the outermost inwards.
//
//===----------------------------------------------------------------------===//
#include "SplitMask.h"
#include "FloatFacts.h"
#include "Trace.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include <cmath>

using namespace mlir;
using namespace saccade::raise;

/// Limit of a sentinel after scaling: its exponential is 0 compared to that of realistic scores.
static constexpr double largestScaled = -500;

static bool isTruthNumber(Node node) { return node->is("arith.uitofp") && isTruth((*node)[0]); }

static bool isUnitInterval(double number) { return number >= 0 && number <= 1; }

/// The factor x of 1 − x, which may be written as 1 + x · −1; else null.
static Node reversed(Node node) {
  if (node->is("arith.subf") && (*node)[0]->isNumber(1))
    return (*node)[1];
  bool isSum = node->is("arith.addf") && (*node)[1]->isNumber(1);
  return isSum && (*node)[0]->is("arith.mulf") && (*(*node)[0])[1]->isNumber(-1) ? (*(*node)[0])[0] : nullptr;
}

/// Whether `tensor` holds flags: what the caller passes is taken to be flags, constants are looked at.
static bool holdsFlags(Value tensor, unsigned steps = 8) {
  Operation *op = tensor.getDefiningOp();
  DenseElementsAttr constant;
  if (matchPattern(tensor, m_Constant(&constant)))
    return isa<FloatType>(constant.getElementType())
               ? llvm::all_of(constant.getValues<APFloat>(),
                              [](const APFloat &each) { return isUnitInterval(each.convertToDouble()); })
               : llvm::all_of(constant.getValues<APInt>(), [](const APInt &each) { return each.ule(1); });
  // Ops on tensors that move elements.
  return !op || (steps != 0 && isa<tensor::TensorDialect>(op->getDialect()) && op->getNumRegions() == 0 &&
                 llvm::all_of(op->getOperands(), [&](Value each) {
                   return !isa<RankedTensorType>(each.getType()) || holdsFlags(each, steps - 1);
                 }));
}

/// Whether `node` is a flag: an integer 0 or 1, or a float from 0 to 1.
static bool isFlag(Node node, unsigned steps = 8) {
  auto isAlso = [&](Node each) { return steps != 0 && isFlag(each, steps - 1); };
  if (node->kind == Expr::Number)
    return isUnitInterval(node->number);
  if (node->kind == Expr::Integer)
    return node->integer == 0 || node->integer == 1;
  if (node->kind == Expr::Element)
    return !isTruth(node) && holdsFlags(node->access.tensor);
  if (node->kind == Expr::Scalar)
    return !isTruth(node) && node->type.isIntOrFloat();
  if (Node flag = reversed(node))
    return isAlso(flag);
  if (node->is("arith.uitofp") || node->is("arith.extui"))
    return isTruth((*node)[0]) || isAlso((*node)[0]);
  if (node->is("arith.select"))
    return isAlso((*node)[1]) && isAlso((*node)[2]);
  static const StringRef kept[] = {"arith.sitofp",   "arith.extsi",    "arith.trunci", "arith.index_cast", "arith.mulf",
                                   "arith.maximumf", "arith.minimumf", "arith.muli",   "arith.andi",       "arith.ori",
                                   "arith.xori",     "arith.maxsi",    "arith.minsi"};
  return node->kind == Expr::Apply && !isTruth(node) && llvm::is_contained(kept, node->name) &&
         llvm::all_of(node->operands, isAlso);
}

namespace {
/// An integer of which two values are known.
struct TwoValues {
  Node condition;
  int64_t set, unset; ///< the values if `condition` holds, and if not
};
} // namespace

/// The values of `node`, which is converted to a float as a signed or an unsigned integer. nullopt if it may have
/// others.
static std::optional<TwoValues> readTwoValues(Graph &graph, Node node, bool isSigned) {
  if (isTruth(node))
    return TwoValues{node, isSigned ? -1 : 1, 0};
  if (node->is("arith.extui") && isTruth((*node)[0]))
    return TwoValues{(*node)[0], 1, 0};
  if (node->is("arith.extsi") && isTruth((*node)[0]) && node->type.getIntOrFloatBitWidth() < 63)
    return TwoValues{(*node)[0], isSigned ? -1 : (int64_t(1) << node->type.getIntOrFloatBitWidth()) - 1, 0};
  if (node->is("arith.select") && (*node)[1]->kind == Expr::Integer && (*node)[2]->kind == Expr::Integer &&
      (isSigned || ((*node)[1]->integer >= 0 && (*node)[2]->integer >= 0)))
    return TwoValues{(*node)[0], (*node)[1]->integer, (*node)[2]->integer};
  if (!isFlag(node))
    return std::nullopt;
  Builder b(graph.getContext());
  auto predicate = arith::CmpIPredicateAttr::get(graph.getContext(), arith::CmpIPredicate::ne);
  return TwoValues{graph.apply("arith.cmpi", b.getI1Type(), {node, graph.integer(node->type, 0)},
                               b.getDictionaryAttr(b.getNamedAttr("predicate", predicate))),
                   1, 0};
}

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

/// The condition under which `factor` · sentinel does not mask the key: factor 0, where 1 masks. Null if other factors
/// might mask partially, or raise a score.
Node Splitter::isVisible(Node factor, double sentinel) {
  Node inner = reversed(factor), flag = inner ? inner : factor;
  if (!flag->is("arith.sitofp") && !flag->is("arith.uitofp")) {
    // 1 − m, where m is 1 for visible keys. m may be any value in between, but then 1 − m is at least 2⁻²⁴.
    if (!inner || !isFlag(flag) || sentinel * this->factor * 0x1p-24 > largestScaled)
      return nullptr;
    Builder b(graph.getContext());
    auto predicate = arith::CmpFPredicateAttr::get(graph.getContext(), arith::CmpFPredicate::OGE);
    return graph.apply("arith.cmpf", b.getI1Type(), {flag, graph.number(1)},
                       b.getDictionaryAttr(b.getNamedAttr("predicate", predicate)));
  }
  std::optional<TwoValues> values = readTwoValues(graph, (*flag)[0], flag->is("arith.sitofp"));
  if (!values)
    return nullptr;
  auto factorOf = [&](int64_t value) { return inner ? 1 - double(value) : double(value); };
  auto hides = [&](double number) { return number * sentinel * this->factor <= largestScaled; };
  double set = factorOf(values->set), unset = factorOf(values->unset);
  if (set == 0 && hides(unset))
    return values->condition;
  return unset == 0 && hides(set) ? graph.negated(values->condition) : nullptr;
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

/// Tells whether a score may be as large as the numbers that hide keys, for some keys of a row; with an infinite limit,
/// whether it may be ∞ or NaN for any key. Flags are not negative. Tensors have no such elements, except reductions of
/// masked scores.
class LargeNumbers {
public:
  LargeNumbers(unsigned key, double limit) : key(key), limit(limit) {}

  /// Whether `sign` · `node` may be large.
  bool isIn(Node node, int sign) {
    if (!seen.insert({node, sign}).second)
      return false; // known, or the answer would have been found
    if (node->kind == Expr::Element)
      if (DenseElementsAttr constant; matchPattern(node->access.tensor, m_Constant(&constant)))
        return hasLarge(constant, sign);
    if (node->kind == Expr::Element && (node->dependsOn(key) || std::isinf(limit))) {
      auto op = node->access.tensor.getDefiningOp<linalg::LinalgOp>();
      // A bias may be −∞ for some keys.
      return op ? op.getNumReductionLoops() != 0 && !isContraction(op) : std::isinf(limit) && sign < 0;
    }
    if (node->kind == Expr::Number)
      return sign * node->number >= limit;
    // At most 1, and NaN only for NaN, which both signs find: it is a sum of both infinities, or made by a function.
    const FloatFacts &facts = floatFacts(node->name);
    if (node->kind == Expr::Apply && facts.isBounded)
      return std::isinf(limit) && LargeNumbers(key, limit).isIn((*node)[0], 1) &&
             LargeNumbers(key, limit).isIn((*node)[0], -1);
    bool isFunction =
        node->is("arith.divf") || node->is("arith.remf") || (node->name.starts_with("math.") && !facts.isFinite);
    if (std::isinf(limit) && isFunction)
      return true;
    if (node->is("arith.addf") || node->is("arith.subf"))
      return isIn((*node)[0], sign) || isIn((*node)[1], node->is("arith.subf") ? -sign : sign);
    if (node->is("arith.mulf") && (*node)[1]->kind == Expr::Number) {
      int inner = (*node)[1]->number < 0 ? -sign : sign;
      if (std::isinf(limit) && (*node)[1]->isNumber(0) && isIn((*node)[0], -sign))
        return true; // ∞ · 0 is NaN
      return isIn((*node)[0], inner) || isIn((*node)[1], sign) || (!isFlag((*node)[0]) && isIn((*node)[1], -sign));
    }
    if (node->is("arith.select"))
      return isIn((*node)[1], sign) || isIn((*node)[2], sign);
    static const StringRef choices[] = {"arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf"};
    if (std::isinf(limit) && llvm::is_contained(choices, node->name))
      return llvm::any_of(node->operands, [&](Node each) { return isIn(each, sign); });
    // The exponential of −∞ is 0; other functions make ∞ or NaN of it. Factors are taken to be finite.
    bool isExponential = node->is("math.exp") || node->is("math.exp2") || node->is("math.expm1");
    return llvm::any_of(node->operands, [&](Node each) {
      Operation *op = each->kind == Expr::Element ? each->access.tensor.getDefiningOp() : nullptr;
      bool isFactor = (node->is("arith.mulf") || isExponential) && each->kind == Expr::Element &&
                      (!op || !isa<linalg::LinalgOp, arith::ConstantOp>(op));
      return each->isReal() && !isFactor && (isIn(each, 1) || isIn(each, -1));
    });
  }

private:
  /// Whether an element of `constant`, or its negative, is large, or NaN.
  bool hasLarge(DenseElementsAttr constant, int sign) const {
    return isa<FloatType>(constant.getElementType()) &&
           llvm::any_of(constant.getValues<APFloat>(),
                        [&](const APFloat &each) { return !(sign * each.convertToDouble() < limit); });
  }

  unsigned key;
  double limit;
  DenseSet<std::pair<Node, int>> seen;
};

} // namespace

MaskedScore saccade::raise::splitMask(Graph &graph, Node score, unsigned key) {
  MaskedScore result;
  result.score = Splitter(graph, result).split(score);
  // A number of this size that is positive might make up for the one that hides a key.
  if (result.isFinite && LargeNumbers(key, -largestSentinel).isIn(result.score, 1))
    result = {score, {}};
  result.mayBeNaN = LargeNumbers(key, INFINITY).isIn(result.score, 1);
  return result;
}
