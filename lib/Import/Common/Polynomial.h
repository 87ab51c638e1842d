//===- Polynomial.h - Polynomials of extents --------------------*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_COMMON_POLYNOMIAL_H
#define SACCADE_LIB_IMPORT_COMMON_POLYNOMIAL_H

#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/OpDefinition.h"
#include <map>

namespace saccade::frontend {

/// A sum of products of values of type index with constant coefficients.
class Polynomial {
public:
  /// The values of a product, sorted by their pointers; a power repeats its value.
  using Monomial = llvm::SmallVector<mlir::Value, 2>;
  /// By degree, then lexicographically: an order that multiplication keeps.
  struct Order {
    bool operator()(const Monomial &x, const Monomial &y) const;
  };
  using Terms = std::map<Monomial, int64_t, Order>;

  Polynomial() = default;
  explicit Polynomial(int64_t constant) { addTerm({}, constant); }
  /// An extent: looks through affine.apply, arith.addi, subi and muli, and casts of integers of 64 bits.
  explicit Polynomial(mlir::OpFoldResult extent);

  Polynomial operator+(const Polynomial &other) const;
  Polynomial operator*(const Polynomial &other) const;
  /// The quotient if `divisor` divides the polynomial without a remainder.
  std::optional<Polynomial> dividedBy(const Polynomial &divisor) const;

  /// Whether all coefficients fit in 64 bits and there are not too many terms. All others are meaningless.
  bool isValid() const { return valid; }
  bool operator==(const Polynomial &other) const { return valid && other.valid && terms == other.terms; }
  std::optional<int64_t> constant() const;
  const Terms &getTerms() const { return terms; }

private:
  static Polynomial of(mlir::Value value);
  static Polynomial of(mlir::AffineExpr expression, mlir::ValueRange operands, unsigned numDims);
  void addTerm(const Monomial &monomial, int64_t coefficient);

  Terms terms;
  bool valid = true;
};

} // namespace saccade::frontend

#endif // SACCADE_LIB_IMPORT_COMMON_POLYNOMIAL_H
