//===- Polynomial.cpp - Polynomials of extents ----------------------------===//
#include "Polynomial.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace saccade::frontend;

/// Polynomials with more terms are not tracked.
static constexpr size_t maxTerms = 32;

static bool isBefore(Value x, Value y) { return x.getAsOpaquePointer() < y.getAsOpaquePointer(); }

bool Polynomial::Order::operator()(const Monomial &x, const Monomial &y) const {
  if (x.size() != y.size())
    return x.size() < y.size();
  return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end(), isBefore);
}

void Polynomial::addTerm(const Monomial &monomial, int64_t coefficient) {
  int64_t &sum = terms[monomial];
  valid &= !llvm::AddOverflow(sum, coefficient, sum);
  if (sum == 0)
    terms.erase(monomial);
  valid &= terms.size() <= maxTerms;
}

Polynomial Polynomial::operator+(const Polynomial &other) const {
  Polynomial sum = *this;
  sum.valid &= other.valid;
  for (const auto &[monomial, coefficient] : other.terms)
    sum.addTerm(monomial, coefficient);
  return sum;
}

static Polynomial::Monomial multiply(const Polynomial::Monomial &x, const Polynomial::Monomial &y) {
  Polynomial::Monomial product;
  std::merge(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(product), isBefore);
  return product;
}

Polynomial Polynomial::operator*(const Polynomial &other) const {
  Polynomial product;
  product.valid = valid && other.valid;
  for (const auto &[x, a] : terms)
    for (const auto &[y, b] : other.terms) {
      int64_t coefficient = 0;
      product.valid &= !llvm::MulOverflow(a, b, coefficient);
      if (!product.valid)
        return product;
      product.addTerm(multiply(x, y), coefficient);
    }
  return product;
}

std::optional<Polynomial> Polynomial::dividedBy(const Polynomial &divisor) const {
  if (!valid || !divisor.valid || divisor.terms.empty())
    return std::nullopt;
  const auto &[leading, factor] = *divisor.terms.rbegin();
  Polynomial rest = *this, quotient;
  while (!rest.terms.empty()) {
    const auto &[monomial, coefficient] = *rest.terms.rbegin();
    bool divides = std::includes(monomial.begin(), monomial.end(), leading.begin(), leading.end(), isBefore) &&
                   coefficient != std::numeric_limits<int64_t>::min() && coefficient % factor == 0;
    if (!divides)
      return std::nullopt;
    Polynomial term;
    Monomial others;
    std::set_difference(monomial.begin(), monomial.end(), leading.begin(), leading.end(), std::back_inserter(others),
                        isBefore);
    term.addTerm(others, coefficient / factor);
    quotient = quotient + term;
    rest = rest + term * divisor * Polynomial(-1);
    if (!rest.valid || !quotient.valid)
      return std::nullopt;
  }
  return quotient;
}

std::optional<int64_t> Polynomial::constant() const {
  if (!valid || terms.size() > 1 || (terms.size() == 1 && !terms.begin()->first.empty()))
    return std::nullopt;
  return terms.empty() ? 0 : terms.begin()->second;
}

Polynomial::Polynomial(OpFoldResult extent) {
  if (std::optional<int64_t> constant = getConstantIntValue(extent))
    addTerm({}, *constant);
  else
    *this = of(cast<Value>(extent));
}

Polynomial Polynomial::of(AffineExpr expression, ValueRange operands, unsigned numDims) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expression))
    return Polynomial(constant.getValue());
  if (auto dim = dyn_cast<AffineDimExpr>(expression))
    return Polynomial(OpFoldResult(operands[dim.getPosition()]));
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expression))
    return Polynomial(OpFoldResult(operands[numDims + symbol.getPosition()]));
  auto binary = cast<AffineBinaryOpExpr>(expression);
  Polynomial invalid;
  invalid.valid = false;
  if (binary.getKind() != AffineExprKind::Add && binary.getKind() != AffineExprKind::Mul)
    return invalid;
  Polynomial lhs = of(binary.getLHS(), operands, numDims), rhs = of(binary.getRHS(), operands, numDims);
  return binary.getKind() == AffineExprKind::Add ? lhs + rhs : lhs * rhs;
}

Polynomial Polynomial::of(Value value) {
  Polynomial found, itself;
  itself.addTerm({value}, 1);
  Operation *op = value.getDefiningOp();
  auto operand = [&](unsigned i) { return Polynomial(OpFoldResult(op->getOperand(i))); };
  auto isWide = [](Type type) { return type.isIndex() || type.isInteger(64); };
  if (!op || !isWide(value.getType()))
    return itself;
  if (auto apply = dyn_cast<affine::AffineApplyOp>(op))
    found = of(apply.getAffineMap().getResult(0), apply.getMapOperands(), apply.getAffineMap().getNumDims());
  else if (isa<arith::AddIOp>(op))
    found = operand(0) + operand(1);
  else if (isa<arith::SubIOp>(op))
    found = operand(0) + operand(1) * Polynomial(-1);
  else if (isa<arith::MulIOp>(op))
    found = operand(0) * operand(1);
  else if (isa<arith::IndexCastOp>(op) && isWide(op->getOperand(0).getType()))
    found = operand(0);
  else
    return itself;
  return found.valid ? found : itself;
}
