//===- Expr.cpp - Expression uniquing and affine positions ----------------===//
#include "Expr.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>

using namespace mlir;
using namespace saccade::raise;

//===----------------------------------------------------------------------===//
// Node creation
//===----------------------------------------------------------------------===//

Type Graph::real() const { return Float64Type::get(context); }

Node Graph::unique(Expr expr) {
  auto word = [](auto pointer) { return reinterpret_cast<uint64_t>(pointer.getAsOpaquePointer()); };
  std::vector<uint64_t> key = {uint64_t(expr.kind),
                               word(expr.type),
                               llvm::bit_cast<uint64_t>(expr.number),
                               uint64_t(expr.integer),
                               reinterpret_cast<uint64_t>(expr.name.data()),
                               word(expr.attributes),
                               expr.key};
  for (Value value : {expr.value, expr.access.tensor})
    key.push_back(word(value));
  if (expr.position)
    key.push_back(reinterpret_cast<uint64_t>(expr.position.getAsOpaquePointer()));
  for (AffineExpr index : expr.access.index)
    key.push_back(reinterpret_cast<uint64_t>(index.getAsOpaquePointer()));
  for (Node operand : expr.operands)
    key.push_back(operand->id);
  Node &node = known[key];
  if (node)
    return node;
  auto addLoops = [&](AffineExpr index) {
    for (unsigned loop = 0; loop < extents.size(); ++loop)
      if (index.isFunctionOfDim(loop))
        expr.loops |= uint64_t(1) << loop;
  };
  if (expr.position)
    addLoops(expr.position);
  llvm::for_each(expr.access.index, addLoops);
  expr.readsTensors = expr.kind == Expr::Element || expr.kind == Expr::Softmax;
  expr.isCostly = expr.kind == Expr::Softmax || (expr.name.starts_with("math.") && expr.name != "math.absf") ||
                  expr.name == "arith.divf";
  for (Node operand : expr.operands) {
    expr.loops |= operand->loops;
    expr.readsTensors |= operand->readsTensors || isa_and_nonnull<RankedTensorType>(operand->type);
    expr.isCostly |= operand->isCostly;
  }
  expr.id = nodes.size();
  nodes.push_back(std::move(expr));
  return node = &nodes.back();
}

Node Graph::number(double value) {
  Expr expr{Expr::Number, real()};
  expr.number = value;
  return unique(std::move(expr));
}

Node Graph::integer(Type type, int64_t value) {
  if (type.isIndex())
    return position(getAffineConstantExpr(value, context));
  Expr expr{Expr::Integer, type};
  expr.integer = type.isInteger(1) ? value & 1 : value;
  return unique(std::move(expr));
}

Node Graph::truth(bool value) { return integer(IntegerType::get(context, 1), value); }

Node Graph::position(AffineExpr position) {
  Expr expr{Expr::Position, IndexType::get(context)};
  expr.position = simplify(position);
  return unique(std::move(expr));
}

Node Graph::element(Value tensor, ArrayRef<AffineExpr> index) {
  Type type = cast<RankedTensorType>(tensor.getType()).getElementType();
  Expr expr{Expr::Element, isa<FloatType>(type) ? real() : type};
  expr.access = {tensor, llvm::SmallVector<AffineExpr, 4>(index)};
  return unique(std::move(expr));
}

Node Graph::scalar(Value value) {
  Expr expr{Expr::Scalar, isa<FloatType>(value.getType()) ? real() : value.getType()};
  expr.value = value;
  return unique(std::move(expr));
}

Node Graph::softmax(Node input, unsigned key, Value value) {
  Expr expr{Expr::Softmax, real()};
  expr.key = key;
  expr.value = value;
  expr.operands = {input};
  return unique(std::move(expr));
}

static bool isCommutative(StringRef name) {
  return llvm::is_contained({"arith.addf", "arith.mulf", "arith.maximumf", "arith.minimumf", "arith.maxnumf",
                             "arith.minnumf", "arith.addi", "arith.muli", "arith.andi", "arith.ori", "arith.xori",
                             "arith.maxsi", "arith.minsi", "arith.maxui", "arith.minui"},
                            name);
}

Node Graph::apply(StringRef name, Type type, ArrayRef<Node> given, DictionaryAttr attributes) {
  SmallVector<Node, 3> operands(given);
  if (isa<FloatType>(type))
    type = real();
  // Sort operands: constants last, the others in order of creation.
  if (isCommutative(name))
    llvm::sort(operands, [](Node a, Node b) {
      auto rank = [](Node node) {
        bool isConstant = node->kind == Expr::Number || node->kind == Expr::Integer ||
                          (node->kind == Expr::Position && isa<AffineConstantExpr>(node->position));
        return std::pair(isConstant, node->id);
      };
      return rank(a) < rank(b);
    });
  if (Node simple = foldNumbers(name, operands))
    return simple;
  if (Node simple = simplifyReal(name, operands))
    return simple;
  if (Node simple = simplifyLogic(name, type, operands, attributes))
    return simple;
  if (Node simple = simplifyIndex(name, type, operands, attributes))
    return simple;
  Expr expr{Expr::Apply, type};
  // Unique the name, so that pointers can be compared.
  expr.name = StringAttr::get(context, name).getValue();
  // Drop all attributes except comparison predicates, such as fast-math flags.
  bool isComparison = name == "arith.cmpi" || name == "arith.cmpf";
  expr.attributes = isComparison ? DictionaryAttr::get(context, {*attributes.getNamed("predicate")}) : DictionaryAttr();
  expr.operands = operands;
  return unique(std::move(expr));
}

Node Graph::replace(Node node, Node from, Node to) {
  llvm::DenseMap<Node, Node> done = {{from, to}};
  forEachNode(node, [&](Node each) {
    if (done.contains(each))
      return;
    SmallVector<Node, 3> operands = llvm::map_to_vector<3>(each->operands, [&](Node operand) { return done[operand]; });
    if (operands == each->operands)
      done[each] = each;
    else if (each->kind == Expr::Softmax)
      done[each] = softmax(operands[0], each->key, each->value);
    else
      done[each] = apply(each->name, each->type, operands, each->attributes);
  });
  return done[node];
}

void saccade::raise::forEachNode(Node root, llvm::function_ref<void(Node)> visit) {
  llvm::DenseSet<Node> seen;
  SmallVector<std::pair<Node, bool>> stack = {{root, false}};
  while (!stack.empty()) {
    auto [node, isDone] = stack.pop_back_val();
    if (isDone) {
      visit(node);
      continue;
    }
    if (!seen.insert(node).second)
      continue;
    stack.push_back({node, true});
    for (Node operand : llvm::reverse(node->operands))
      if (!seen.contains(operand))
        stack.push_back({operand, false});
  }
}

SmallVector<std::pair<Node, bool>> saccade::raise::addends(Node root) {
  SmallVector<std::pair<Node, bool>> result, todo = {{root, false}};
  while (!todo.empty() && result.size() < 64) {
    auto [node, isSubtracted] = todo.pop_back_val();
    if (node->is("arith.addf") || node->is("arith.subf")) {
      todo.push_back({(*node)[1], isSubtracted != node->is("arith.subf")});
      todo.push_back({(*node)[0], isSubtracted});
    } else {
      result.push_back({node, isSubtracted});
    }
  }
  result.append(todo);
  return result;
}

//===----------------------------------------------------------------------===//
// Positions
//===----------------------------------------------------------------------===//

/// Collects the terms of `expr` with their constant factors.
static void flatten(AffineExpr expr, int64_t factor, SmallVectorImpl<std::pair<AffineExpr, int64_t>> &terms) {
  if (auto both = dyn_cast<AffineBinaryOpExpr>(expr)) {
    if (both.getKind() == AffineExprKind::Add) {
      flatten(both.getLHS(), factor, terms);
      return flatten(both.getRHS(), factor, terms);
    }
    if (auto constant = dyn_cast<AffineConstantExpr>(both.getRHS()); constant && both.getKind() == AffineExprKind::Mul)
      return flatten(both.getLHS(), factor * constant.getValue(), terms);
  }
  terms.push_back({expr, factor});
}

/// e floordiv c · (c · f) + e mod c · f is e · f.
static AffineExpr joinDigits(AffineExpr sum) {
  SmallVector<std::pair<AffineExpr, int64_t>> terms;
  flatten(sum, 1, terms);
  for (auto [l, low] : llvm::enumerate(terms)) {
    auto digit = dyn_cast<AffineBinaryOpExpr>(low.first);
    if (!digit || digit.getKind() != AffineExprKind::Mod)
      continue;
    AffineExpr quotient = digit.getLHS().floorDiv(digit.getRHS());
    auto divisor = dyn_cast<AffineConstantExpr>(digit.getRHS());
    for (auto [h, high] : llvm::enumerate(terms)) {
      if (!divisor || high.first != quotient || high.second != low.second * divisor.getValue())
        continue;
      // The other terms are added anew: a sum may keep a term that is subtracted from it.
      AffineExpr joined = digit.getLHS() * low.second;
      for (auto [i, term] : llvm::enumerate(terms))
        if (i != l && i != h)
          joined = joined + term.first * term.second;
      return joinDigits(joined);
    }
  }
  return sum;
}

AffineExpr Graph::simplify(AffineExpr expr) const {
  auto both = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!both)
    return expr;
  AffineExpr lhs = simplify(both.getLHS()), rhs = simplify(both.getRHS());
  // Loops with trip count 1 have position 0.
  auto isUnit = [&](AffineExpr e) {
    auto dim = dyn_cast<AffineDimExpr>(e);
    return dim && extents[dim.getPosition()] == 1;
  };
  AffineExpr zero = getAffineConstantExpr(0, context);
  lhs = isUnit(lhs) ? zero : lhs;
  rhs = isUnit(rhs) ? zero : rhs;
  auto divisor = dyn_cast<AffineConstantExpr>(rhs);
  if (both.getKind() == AffineExprKind::Add)
    return joinDigits(lhs + rhs);
  bool divides = both.getKind() == AffineExprKind::FloorDiv || both.getKind() == AffineExprKind::Mod;
  if (!divides || !divisor || divisor.getValue() <= 0)
    return getAffineBinaryOpExpr(both.getKind(), lhs, rhs);
  // lhs = divisor · quotient + rest; if 0 ≤ rest < divisor, the quotient and the remainder are known.
  SmallVector<std::pair<AffineExpr, int64_t>> terms;
  flatten(lhs, 1, terms);
  AffineExpr quotient = zero, rest = zero;
  for (auto [term, factor] : terms) {
    if (factor % divisor.getValue() == 0)
      quotient = quotient + term * (factor / divisor.getValue());
    else
      rest = rest + term * factor;
  }
  SmallVector<std::optional<int64_t>> lower(extents.size(), 0), upper;
  for (int64_t extent : extents)
    upper.push_back(ShapedType::isDynamic(extent) ? std::nullopt : std::optional(extent - 1));
  auto minRest = getBoundForAffineExpr(rest, extents.size(), 0, lower, upper, /*isUpper=*/false);
  auto maxRest = getBoundForAffineExpr(rest, extents.size(), 0, lower, upper, /*isUpper=*/true);
  if (minRest && maxRest && *minRest >= 0 && *maxRest < divisor.getValue())
    return both.getKind() == AffineExprKind::FloorDiv ? quotient : rest;
  return both.getKind() == AffineExprKind::FloorDiv ? quotient + rest.floorDiv(divisor) : rest % divisor;
}

/// The smallest and the largest value of `expr`. They are rounded, which does not matter for a comparison with 2ⁿ.
std::pair<double, double> Graph::boundsOf(AffineExpr expr) const {
  if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
    int64_t extent = extents[dim.getPosition()];
    return {0, ShapedType::isDynamic(extent) ? 0x1p24 : std::max<double>(extent - 1, 0)};
  }
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return {constant.getValue(), constant.getValue()};
  auto both = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!both)
    return {-INFINITY, INFINITY};
  auto [lower, upper] = boundsOf(both.getLHS());
  auto [least, most] = boundsOf(both.getRHS());
  if (both.getKind() == AffineExprKind::Add)
    return {lower + least, upper + most};
  if (both.getKind() == AffineExprKind::Mul)
    return std::minmax({lower * least, lower * most, upper * least, upper * most});
  if (both.getKind() == AffineExprKind::Mod)
    return {0, most};
  // Quotients: divisors are at least 1.
  return {std::min(lower, 0.0), std::max(upper, 0.0)};
}

bool Graph::fits(Node node, unsigned width) const {
  if (width >= 64)
    return true;
  if (node->kind == Expr::Position) {
    auto [lower, upper] = boundsOf(node->position);
    return lower >= -std::ldexp(1, width - 1) && upper <= std::ldexp(1, width - 1) - 1;
  }
  if (node->is("arith.index_cast") && !node->operands[0]->type.isIndex())
    return node->operands[0]->type.getIntOrFloatBitWidth() <= width;
  static const StringRef within[] = {"arith.maxsi", "arith.minsi", "arith.remsi", "arith.divsi", "arith.floordivsi"};
  return node->kind == Expr::Apply && llvm::is_contained(within, node->name) &&
         llvm::all_of(node->operands, [&](Node each) { return fits(each, width); });
}
