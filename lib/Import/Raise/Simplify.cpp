//===- Simplify.cpp - Algebraic simplification of expressions -------------===//
//
// Rules that hold for all real numbers, truth values or positions. They may change rounding in the last bit, but not
// NaN and infinities that can reach a result.
//
//===----------------------------------------------------------------------===//
#include "Expr.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <cfloat>
#include <cmath>

using namespace mlir;
using namespace saccade::raise;

static bool isReal(Node node) { return node->kind == Expr::Number; }
static bool isTrue(Node node) { return node->kind == Expr::Integer && node->type.isInteger(1) && node->integer; }
static bool isFalse(Node node) { return node->kind == Expr::Integer && node->type.isInteger(1) && !node->integer; }

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Node Graph::foldNumbers(StringRef name, ArrayRef<Node> operands) {
  if (operands.empty() || !llvm::all_of(operands, isReal))
    return nullptr;
  double x = operands[0]->number;
  if (operands.size() == 1) {
    using Function = double (*)(double);
    static const std::pair<StringRef, Function> functions[] = {
        {"arith.negf", [](double a) { return -a; }},
        {"math.sqrt", [](double a) { return std::sqrt(a); }},
        {"math.rsqrt", [](double a) { return 1 / std::sqrt(a); }},
        {"math.exp", [](double a) { return std::exp(a); }},
        {"math.log", [](double a) { return std::log(a); }},
        {"math.absf", [](double a) { return std::abs(a); }}};
    for (auto [function, compute] : functions)
      if (name == function)
        return number(compute(x));
    return nullptr;
  }
  if (operands.size() != 2)
    return nullptr;
  double y = operands[1]->number;
  if (name == "arith.addf")
    return number(x + y);
  if (name == "arith.subf")
    return number(x - y);
  if (name == "arith.mulf")
    return number(x * y);
  if (name == "arith.divf")
    return number(x / y);
  if (name == "math.powf")
    return number(std::pow(x, y));
  return nullptr;
}

Node Graph::simplifyReal(StringRef name, ArrayRef<Node> operands) {
  if (name == "arith.extf" || name == "arith.truncf")
    return operands[0];
  if (name == "arith.negf")
    return product(operands[0], number(-1));
  if (name == "math.rsqrt")
    return apply("arith.divf", real(), {number(1), apply("math.sqrt", real(), operands)});
  if (name == "arith.uitofp" || name == "arith.sitofp") {
    Node from = operands[0];
    bool isSigned = name == "arith.sitofp";
    if (from->kind == Expr::Integer && !isSigned && !isTruth(from) && from->integer < 0)
      return nullptr;
    if (from->kind == Expr::Integer)
      return number(isTruth(from) && isSigned ? -double(from->integer) : double(from->integer));
    // A truth value extended to a wider integer is 0 or 1.
    if (from->is("arith.extui") && isTruth((*from)[0]))
      return apply("arith.uitofp", real(), {(*from)[0]});
    return nullptr;
  }
  if (operands.size() != 2 || !operands[0]->isReal() || !operands[1]->isReal())
    return nullptr;
  Node x = operands[0], y = operands[1];
  if (name == "arith.addf" && y->isNumber(0))
    return x;
  if (name == "arith.subf") {
    if (y->isNumber(0))
      return x;
    if (x->isNumber(0))
      return product(y, number(-1));
    if (isReal(y))
      return sum(x, number(-y->number));
    // 1 − [c] = [not c]
    if (x->isNumber(1) && y->is("arith.uitofp") && isTruth((*y)[0]))
      return apply("arith.uitofp", real(), {negated((*y)[0])});
  }
  if (name == "arith.mulf") {
    if (y->isNumber(1))
      return x;
    // The product of the numbers may be too large for f32 though x · y is not.
    if (isReal(y) && x->is("arith.mulf") && isReal((*x)[1]) && std::abs((*x)[1]->number * y->number) <= FLT_MAX)
      return product((*x)[0], number((*x)[1]->number * y->number));
    // a · (1 / b) = a / b
    for (auto [a, b] : {std::pair(x, y), std::pair(y, x)})
      if (b->is("arith.divf") && (*b)[0]->isNumber(1))
        return apply("arith.divf", real(), {a, (*b)[1]});
  }
  if (name == "arith.divf" && isReal(y) && std::abs(1 / y->number) <= FLT_MAX && std::isfinite(y->number))
    return product(x, number(1 / y->number));
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Truth values
//===----------------------------------------------------------------------===//

Node Graph::negated(Node condition) { return apply("arith.xori", condition->type, {condition, truth(true)}); }

Node Graph::both(Node lhs, Node rhs) { return apply("arith.andi", lhs->type, {lhs, rhs}); }

static unsigned widthOf(Type type) { return type.isIndex() ? 64 : type.getIntOrFloatBitWidth(); }

static DictionaryAttr withPredicate(MLIRContext *context, arith::CmpIPredicate predicate) {
  Builder b(context);
  return b.getDictionaryAttr(b.getNamedAttr("predicate", arith::CmpIPredicateAttr::get(context, predicate)));
}

Node Graph::compareIntegers(DictionaryAttr attributes, ArrayRef<Node> operands) {
  auto predicate = cast<arith::CmpIPredicateAttr>(attributes.get("predicate")).getValue();
  Node x = operands[0], y = operands[1];
  auto equals = [&](Node c, int64_t value) {
    return negated(value == (predicate == arith::CmpIPredicate::eq) ? negated(c) : c);
  };
  bool isEquality = predicate == arith::CmpIPredicate::eq || predicate == arith::CmpIPredicate::ne;
  for (auto [c, constant] : {std::pair(x, y), std::pair(y, x)}) {
    if (!isEquality || constant->kind != Expr::Integer || (constant->integer != 0 && constant->integer != 1))
      continue;
    if (isTruth(c))
      return equals(c, constant->integer);
    if (c->is("arith.extui") && isTruth((*c)[0]))
      return equals((*c)[0], constant->integer);
  }
  // Compare positions as index, regardless of the integer type they were cast to.
  auto asIndex = [&](Node node) -> Node {
    if (node->is("arith.index_cast") && (*node)[0]->type.isIndex() && fits((*node)[0], widthOf(node->type)))
      return (*node)[0];
    return node->kind == Expr::Integer && !isTruth(node) ? position(getAffineConstantExpr(node->integer, context))
                                                         : nullptr;
  };
  Node left = asIndex(x), right = asIndex(y);
  if (left && right)
    return apply("arith.cmpi", IntegerType::get(context, 1), {left, right}, attributes);
  // Canonicalize the order of operands.
  using P = arith::CmpIPredicate;
  static const std::pair<P, P> swapped[] = {{P::sgt, P::slt}, {P::sge, P::sle}, {P::ugt, P::ult}, {P::uge, P::ule}};
  for (auto [from, to] : swapped)
    if (predicate == from)
      return apply("arith.cmpi", IntegerType::get(context, 1), {y, x}, withPredicate(context, to));
  if (isEquality && y->id < x->id)
    return apply("arith.cmpi", IntegerType::get(context, 1), {y, x}, attributes);
  return nullptr;
}

Node Graph::simplifyLogic(StringRef name, Type type, ArrayRef<Node> operands, DictionaryAttr attributes) {
  if (name == "arith.cmpi")
    return compareIntegers(attributes, operands);
  if (name == "arith.cmpf") {
    // Comparing a converted truth value with 0 or 1 gives the truth value or its negation.
    auto predicate = cast<arith::CmpFPredicateAttr>(attributes.get("predicate")).getValue();
    Node x = operands[0], y = operands[1];
    bool isTruthNumber = x->is("arith.uitofp") && isTruth((*x)[0]);
    using P = arith::CmpFPredicate;
    if (isTruthNumber && (y->isNumber(0) || y->isNumber(1))) {
      bool comparesToOne = y->isNumber(1);
      if (predicate == P::OEQ || predicate == P::UEQ)
        return comparesToOne ? (*x)[0] : negated((*x)[0]);
      if (predicate == P::UNE || predicate == P::ONE)
        return comparesToOne ? negated((*x)[0]) : (*x)[0];
      if (predicate == P::OGT && !comparesToOne)
        return (*x)[0];
    }
    return nullptr;
  }
  if (name == "arith.trunci" && type.isInteger(1) &&
      (operands[0]->is("arith.extui") || operands[0]->is("arith.extsi")) && isTruth((*operands[0])[0]))
    return (*operands[0])[0];
  if (name == "arith.select") {
    Node condition = operands[0], x = operands[1], y = operands[2];
    if (x == y || isTrue(condition))
      return x;
    if (isFalse(condition))
      return y;
    if (condition->is("arith.xori") && isTrue((*condition)[1]))
      return apply(name, type, {(*condition)[0], y, x});
    if (isTruth(x) && isTrue(x) && isFalse(y))
      return condition;
    if (isTruth(x) && isFalse(x) && isTrue(y))
      return negated(condition);
    if (x->isNumber(1) && y->isNumber(0))
      return apply("arith.uitofp", real(), {condition});
    if (x->isNumber(0) && y->isNumber(1))
      return apply("arith.uitofp", real(), {negated(condition)});
    return nullptr;
  }
  if (operands.size() != 2 || !isTruth(operands[0]) || !isTruth(operands[1]))
    return nullptr;
  Node x = operands[0], y = operands[1];
  if (name == "arith.andi" && (isTrue(y) || isFalse(y) || x == y))
    return isTrue(y) ? x : y;
  if (name == "arith.ori" && (isTrue(y) || isFalse(y) || x == y))
    return isFalse(y) ? x : y;
  if (name != "arith.xori")
    return nullptr;
  if (x == y)
    return truth(false);
  if (isFalse(y))
    return x;
  if (!isTrue(y))
    return nullptr;
  if (x->is("arith.xori") && isTrue((*x)[1]))
    return (*x)[0];
  if (x->is("arith.cmpi")) {
    auto predicate = cast<arith::CmpIPredicateAttr>(x->attributes.get("predicate")).getValue();
    return apply("arith.cmpi", type, x->operands, withPredicate(context, arith::invertPredicate(predicate)));
  }
  // De Morgan: a key is visible if none of several conditions masks it.
  if (x->is("arith.ori"))
    return both(negated((*x)[0]), negated((*x)[1]));
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Positions
//===----------------------------------------------------------------------===//

Node Graph::simplifyIndex(StringRef name, Type type, ArrayRef<Node> operands, DictionaryAttr attributes) {
  if (isa<FloatType>(type) || type.isInteger(1))
    return nullptr;
  auto isCast = [](StringRef op) { return op == "arith.index_cast" || op == "arith.index_castui"; };
  if (isCast(name) || name == "arith.extsi" || name == "arith.extui" || name == "arith.trunci") {
    Node from = operands[0];
    if (from->kind == Expr::Integer && !isTruth(from)) {
      llvm::APInt value(widthOf(from->type), from->integer, /*isSigned=*/true, /*implicitTrunc=*/true);
      bool isUnsigned = name == "arith.extui" || name == "arith.index_castui";
      value = isUnsigned ? value.zextOrTrunc(widthOf(type)) : value.sextOrTrunc(widthOf(type));
      return integer(type, value.getSExtValue());
    }
    // Zero extension turns negative numbers into large ones.
    if (name == "arith.extui" || (name == "arith.index_castui" && type.isIndex()))
      return nullptr;
    if (!isCast(from->name))
      return nullptr;
    // The value before two casts, unless the first one cuts it off.
    Node before = (*from)[0];
    bool isWhole = widthOf(from->type) >= widthOf(before->type) ||
                   (from->is("arith.index_cast") && fits(before, widthOf(from->type)));
    if (isCast(name) && type == before->type && isWhole)
      return before;
    if (before->type.isIndex() && (name == "arith.trunci" || (name == "arith.extsi" && isWhole)))
      return apply("arith.index_cast", type, {before});
    return nullptr;
  }
  bool isSum = name == "arith.addi" || name == "arith.subi" || name == "arith.muli";
  if (!isSum && name != "arith.maxsi" && name != "arith.minsi" && name != "arith.floordivsi" && name != "arith.remsi" &&
      name != "arith.divsi")
    return nullptr;
  Node x = operands[0], y = operands[1];
  if (type.isIndex()) {
    if (x->kind != Expr::Position || y->kind != Expr::Position)
      return nullptr;
    if (name == "arith.addi")
      return position(x->position + y->position);
    if (name == "arith.subi")
      return position(x->position - y->position);
    if (name == "arith.muli" && isa<AffineConstantExpr>(y->position))
      return position(x->position * y->position);
    return nullptr;
  }
  // Perform arithmetic on positions before casts. Sums and products may be cut off afterwards.
  SmallVector<Node> indices;
  bool hasPosition = false;
  for (Node operand : {x, y}) {
    if (operand->is("arith.index_cast") && (*operand)[0]->type.isIndex() &&
        (isSum || fits((*operand)[0], widthOf(type)))) {
      indices.push_back((*operand)[0]);
      hasPosition = true;
    } else if (operand->kind == Expr::Integer) {
      indices.push_back(position(getAffineConstantExpr(operand->integer, context)));
    } else {
      return nullptr;
    }
  }
  if (!hasPosition) {
    int64_t a = x->integer, b = y->integer, value;
    bool overflows = name == "arith.addi"   ? llvm::AddOverflow(a, b, value)
                     : name == "arith.subi" ? llvm::SubOverflow(a, b, value)
                     : name == "arith.muli" ? llvm::MulOverflow(a, b, value)
                                            : true;
    return overflows ? nullptr : integer(type, llvm::SignExtend64(value, widthOf(type)));
  }
  return apply("arith.index_cast", type, {apply(name, IndexType::get(context), indices, attributes)});
}
