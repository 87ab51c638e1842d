//===- Extents.cpp - Arithmetic on extents --------------------------------===//
#include "saccade/Import/Common/Extents.h"
#include "Polynomial.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Iterators.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Import/Common/Structured.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::frontend;

/// Of frontend ops, and of the ops that define their results.
static constexpr StringLiteral extentsAttr = "extents";

//===- Polynomials as SSA values ------------------------------------------===//

/// Whether `op` comes before the insertion point, in its block.
static bool isAvailable(ImplicitLocOpBuilder &b, Operation *op) {
  Block *block = b.getInsertionBlock();
  return op->getBlock() == block &&
         (b.getInsertionPoint() == block->end() || op->isBeforeInBlock(&*b.getInsertionPoint()));
}

/// An order of values that does not depend on addresses, for those of one block.
static bool comesBefore(Value x, Value y) {
  auto number = [](Value value) { return isa<BlockArgument>(value) ? cast<BlockArgument>(value).getArgNumber() : ~0u; };
  Operation *a = x.getDefiningOp(), *b = y.getDefiningOp();
  if (!a || !b)
    return number(x) < number(y);
  return a != b && a->getBlock() == b->getBlock() && a->isBeforeInBlock(b);
}

/// The value of a polynomial: a constant, a value, an earlier affine.apply of the same polynomial, or a new one.
static OpFoldResult materialize(ImplicitLocOpBuilder &b, const Polynomial &polynomial) {
  if (std::optional<int64_t> constant = polynomial.constant())
    return b.getIndexAttr(*constant);
  const Polynomial::Terms &terms = polynomial.getTerms();
  SmallVector<Value> values;
  for (const auto &[monomial, coefficient] : terms)
    for (Value each : monomial)
      if (!llvm::is_contained(values, each))
        values.push_back(each);
  if (terms.size() == 1 && terms.begin()->first.size() == 1 && terms.begin()->second == 1 &&
      values.front().getType().isIndex())
    return values.front();
  for (Operation *user : values.front().getUsers())
    if (isa<affine::AffineApplyOp>(user) && isAvailable(b, user) &&
        Polynomial(OpFoldResult(user->getResult(0))) == polynomial)
      return user->getResult(0);
  llvm::sort(values, comesBefore);
  // Terms in the order of their factors.
  SmallVector<std::pair<SmallVector<unsigned>, int64_t>> sorted;
  for (const auto &[monomial, coefficient] : terms) {
    auto places = llvm::map_to_vector(
        monomial, [&](Value each) -> unsigned { return llvm::find(values, each) - values.begin(); });
    llvm::sort(places);
    sorted.emplace_back(SmallVector<unsigned>(places), coefficient);
  }
  llvm::sort(sorted);
  AffineExpr sum = b.getAffineConstantExpr(0);
  for (const auto &[places, coefficient] : sorted) {
    AffineExpr product = b.getAffineConstantExpr(coefficient);
    for (unsigned each : places)
      product = product * b.getAffineSymbolExpr(each);
    sum = sum + product;
  }
  for (Value &each : values)
    if (!each.getType().isIndex())
      each = arith::IndexCastOp::create(b, b.getIndexType(), each);
  return affine::AffineApplyOp::create(b, AffineMap::get(0, values.size(), sum), values).getResult();
}

OpFoldResult frontend::reuseExtent(ImplicitLocOpBuilder &b, OpFoldResult extent) {
  auto value = dyn_cast<Value>(extent);
  Operation *made = value ? value.getDefiningOp() : nullptr;
  if (!made || made->getNumResults() != 1)
    return extent;
  auto isSame = [](Value x, Value y) { return success(isEqualConstantIntOrValue(x, y)); };
  auto operand = llvm::find_if(made->getOperands(), [](Value each) { return !getConstantIntValue(each); });
  if (operand == made->operand_end())
    return extent;
  for (Operation *user : (*operand).getUsers())
    if (user != made && isAvailable(b, user) && user->getBlock() == made->getBlock() && user->isBeforeInBlock(made) &&
        OperationEquivalence::isEquivalentTo(user, made, isSame, nullptr, OperationEquivalence::IgnoreLocations)) {
      if (made->use_empty())
        made->erase();
      return user->getResult(0);
    }
  return extent;
}

//===- Arithmetic ---------------------------------------------------------===//

static Polynomial productOf(ArrayRef<OpFoldResult> factors) {
  Polynomial product(1);
  for (OpFoldResult each : factors)
    product = product * Polynomial(each);
  return product;
}

/// A value of more terms than polynomials may have.
template <typename Combine>
static OpFoldResult applyUntracked(ImplicitLocOpBuilder &b, OpFoldResult x, OpFoldResult y, Combine combine) {
  AffineExpr lhs, rhs;
  bindSymbols(b.getContext(), lhs, rhs);
  Value values[] = {getValueOrCreateConstantIndexOp(b, b.getLoc(), x),
                    getValueOrCreateConstantIndexOp(b, b.getLoc(), y)};
  return reuseExtent(b, affine::AffineApplyOp::create(b, AffineMap::get(0, 2, combine(lhs, rhs)), values).getResult());
}

OpFoldResult frontend::addExtents(ImplicitLocOpBuilder &b, OpFoldResult x, OpFoldResult y) {
  Polynomial sum = Polynomial(x) + Polynomial(y);
  if (sum.isValid())
    return materialize(b, sum);
  return applyUntracked(b, x, y, [](AffineExpr lhs, AffineExpr rhs) { return lhs + rhs; });
}

OpFoldResult frontend::subtractExtents(ImplicitLocOpBuilder &b, OpFoldResult x, OpFoldResult y) {
  Polynomial difference = Polynomial(x) + Polynomial(-1) * Polynomial(y);
  if (difference.isValid())
    return materialize(b, difference);
  return applyUntracked(b, x, y, [](AffineExpr lhs, AffineExpr rhs) { return lhs - rhs; });
}

OpFoldResult frontend::multiplyExtents(ImplicitLocOpBuilder &b, ArrayRef<OpFoldResult> factors) {
  if (Polynomial product = productOf(factors); product.isValid())
    return materialize(b, product);
  OpFoldResult product = b.getIndexAttr(1);
  for (OpFoldResult each : factors)
    product = applyUntracked(b, product, each, [](AffineExpr lhs, AffineExpr rhs) { return lhs * rhs; });
  return product;
}

OpFoldResult frontend::divideExtents(ImplicitLocOpBuilder &b, OpFoldResult x, OpFoldResult y) {
  if (std::optional<Polynomial> quotient = Polynomial(x).dividedBy(Polynomial(y)))
    return materialize(b, *quotient);
  // Avoid division by 0. The quotient is unspecified then, and the uses of the result check its extents.
  std::optional<int64_t> numerator = getConstantIntValue(x), divisor = getConstantIntValue(y);
  if (divisor == 0)
    y = b.getIndexAttr(1), divisor = 1;
  if (numerator && divisor && *divisor != -1)
    return b.getIndexAttr(llvm::divideFloorSigned(*numerator, *divisor));
  if (divisor == 1)
    return x;
  if (auto value = dyn_cast<Value>(y))
    y = reuseExtent(b, getAsOpFoldResult(b.createOrFold<arith::MaxSIOp>(value, arith::ConstantIndexOp::create(b, 1))));
  return applyUntracked(b, x, y, [](AffineExpr lhs, AffineExpr rhs) { return lhs.floorDiv(rhs); });
}

OpFoldResult frontend::divideProducts(ImplicitLocOpBuilder &b, ArrayRef<OpFoldResult> numerator,
                                      ArrayRef<OpFoldResult> denominator) {
  SmallVector<OpFoldResult> over(numerator), under;
  for (OpFoldResult each : denominator) {
    auto *same = llvm::find_if(over, [&](OpFoldResult other) { return Polynomial(other) == Polynomial(each); });
    if (same != over.end())
      over.erase(same);
    else
      under.push_back(each);
  }
  return divideExtents(b, multiplyExtents(b, over), multiplyExtents(b, under));
}

bool frontend::areEqualProducts(ArrayRef<OpFoldResult> x, ArrayRef<OpFoldResult> y) {
  return productOf(x) == productOf(y);
}

std::optional<int64_t> frontend::countElements(ArrayRef<OpFoldResult> extents) {
  int64_t count = 1;
  for (OpFoldResult each : extents) {
    std::optional<int64_t> extent = getConstantIntValue(each);
    if (!extent || llvm::MulOverflow(count, *extent, count))
      return std::nullopt;
  }
  return count;
}

//===- Declared extents ---------------------------------------------------===//

/// The sizes of arguments that the symbols of declared extents stand for.
static SmallVector<OpFoldResult> namedSizes(ImplicitLocOpBuilder &b, FunctionOpInterface function) {
  SmallVector<OpFoldResult> sizes;
  SmallVector<StringAttr> seen;
  for (BlockArgument argument : function.getArguments()) {
    auto names = function.getArgAttrOfType<ArrayAttr>(argument.getArgNumber(), attn::dimNamesAttr);
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    for (int64_t dim = 0; names && type && dim < std::min<int64_t>(type.getRank(), names.size()); ++dim) {
      auto name = dyn_cast<StringAttr>(names[dim]);
      if (!name || name.empty() || !type.isDynamicDim(dim) || llvm::is_contained(seen, name))
        continue;
      seen.push_back(name);
      sizes.push_back(extentsOf(b, argument)[dim]);
    }
  }
  return sizes;
}

/// The value of an expression of sizes; null if it has more symbols.
static OpFoldResult evaluate(ImplicitLocOpBuilder &b, AffineExpr expression, ArrayRef<OpFoldResult> sizes) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expression))
    return b.getIndexAttr(constant.getValue());
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expression))
    return symbol.getPosition() < sizes.size() ? sizes[symbol.getPosition()] : OpFoldResult();
  auto binary = dyn_cast<AffineBinaryOpExpr>(expression);
  if (!binary)
    return {};
  OpFoldResult x = evaluate(b, binary.getLHS(), sizes), y = evaluate(b, binary.getRHS(), sizes);
  if (!x || !y)
    return {};
  switch (binary.getKind()) {
  case AffineExprKind::Add:
    return addExtents(b, x, y);
  case AffineExprKind::Mul:
    return multiplyExtents(b, {x, y});
  case AffineExprKind::FloorDiv:
    return divideExtents(b, x, y);
  case AffineExprKind::Mod:
    return subtractExtents(b, x, multiplyExtents(b, {divideExtents(b, x, y), y}));
  default:
    return {};
  }
}

/// An extent of the map `declared`; null for −1 and for unknown expressions.
static OpFoldResult evaluate(ImplicitLocOpBuilder &b, Operation *op, AffineMap declared, unsigned dim) {
  AffineExpr expression = declared.getResult(dim);
  if (auto constant = dyn_cast<AffineConstantExpr>(expression))
    return constant.getValue() < 0 ? OpFoldResult() : OpFoldResult(b.getIndexAttr(constant.getValue()));
  auto function = op->getParentOfType<FunctionOpInterface>();
  return function ? evaluate(b, expression, namedSizes(b, function)) : OpFoldResult();
}

/// The map of one result in the attribute of an op; null if there is none.
static AffineMap mapOf(Operation *op, unsigned result) {
  auto maps = op->getAttrOfType<ArrayAttr>(extentsAttr);
  auto map = maps && result < maps.size() ? dyn_cast<AffineMapAttr>(maps[result]) : AffineMapAttr();
  return map ? map.getValue() : AffineMap();
}

Extents frontend::declaredExtents(FrontendOp &op, unsigned result) {
  Extents extents;
  if (AffineMap map = mapOf(op.getOperation(), result))
    for (unsigned dim = 0; dim < map.getNumResults(); ++dim)
      extents.push_back(evaluate(op.builder(), op.getOperation(), map, dim));
  return extents;
}

Value frontend::declareExtents(FrontendOp &op, unsigned result, Value value) {
  AffineMap map = mapOf(op.getOperation(), result);
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!map || !type || type.hasStaticShape() || type.getRank() != map.getNumResults())
    return value;
  ImplicitLocOpBuilder &b = op.builder();
  Extents declared = declaredExtents(op, result), found = extentsOf(b, value);
  SmallVector<int64_t> shape(type.getShape());
  bool isNew = false;
  for (auto [extent, own, expected] : llvm::zip_equal(shape, found, declared)) {
    if (!ShapedType::isDynamic(extent) || !expected)
      continue;
    extent = getConstantIntValue(expected).value_or(extent);
    isNew |= own != expected;
  }
  if (!isNew)
    return value;
  auto refined = type.clone(shape);
  if (refined != type || isa<BlockArgument>(value) || value.getDefiningOp()->hasAttr(extentsAttr))
    value = tensor::CastOp::create(b, refined, value);
  SmallVector<Attribute> maps(cast<OpResult>(value).getOwner()->getNumResults(), b.getUnitAttr());
  maps[cast<OpResult>(value).getResultNumber()] = AffineMapAttr::get(map);
  value.getDefiningOp()->setAttr(extentsAttr, b.getArrayAttr(maps));
  return value;
}

OpFoldResult frontend::attachedExtent(ImplicitLocOpBuilder &b, Value tensor, int64_t dim) {
  auto result = dyn_cast<OpResult>(tensor);
  AffineMap map = result ? mapOf(result.getOwner(), result.getResultNumber()) : AffineMap();
  return map ? evaluate(b, result.getOwner(), map, dim) : OpFoldResult();
}

void frontend::finishExtents(func::FuncOp function) {
  function.walk<WalkOrder::PostOrder, ReverseIterator>([](Operation *op) {
    if (op->isRegistered()) // the ops of other frontends keep theirs
      op->removeAttr(extentsAttr);
    auto apply = dyn_cast<affine::AffineApplyOp>(op);
    if (!apply)
      return;
    if (!apply.use_empty()) {
      OpBuilder b(apply);
      apply.replaceAllUsesWith(
          affine::expandAffineMap(b, apply.getLoc(), apply.getAffineMap(), apply.getOperands())->front());
    }
    apply.erase();
  });
}
