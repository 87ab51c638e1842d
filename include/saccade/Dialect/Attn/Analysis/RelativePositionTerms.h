//===- RelativePositionTerms.h - Terms of the relative position ---*- C++ -*-===//
//
// Finds the values of a region that depend on batch, head and the relative position key − query only, such as T5 and
// ALiBi biases. attn-tabulate-relative-positions computes them once per relative position.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_RELATIVEPOSITIONTERMS_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_RELATIVEPOSITIONTERMS_H

#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::attn {

/// Marks a `tensor.extract` in a region whose index is in bounds even for positions of padding around the operands.
inline constexpr llvm::StringLiteral inBoundsName = "attn.in_bounds";

/// The dependence of a value of a region on the positions.
struct PositionDependence {
  bool isKnown = false;       ///< it depends on batch, head, positions and captures only
  bool isLinear = false;      ///< it is query · q + key · k + a value that depends on no position
  int64_t query = 0, key = 0; ///< coefficients, if it is linear
  bool isDistance = false;    ///< otherwise: whether it is a function of the distance
  bool usesBatch = false, usesHead = false, usesQuery = false, usesKey = false;

  bool isUniform() const { return isKnown && isLinear && query == 0 && key == 0; }
  /// A function of batch, head and distance.
  bool isTerm() const { return isKnown && (isLinear ? query + key == 0 : isDistance); }
};

/// The dependences of the values of a region.
class PositionDependences {
public:
  /// `numbers`: how many arguments of the region come before the positions.
  PositionDependences(mlir::Region &region, unsigned numbers);
  PositionDependence of(mlir::Value value) const { return known.lookup(value); }

private:
  PositionDependence of(mlir::Operation &op) const;
  llvm::DenseMap<mlir::Value, PositionDependence> known;
};

/// A value of a region that is a function of batch, head and key − query.
struct RelativePositionTerm {
  mlir::Value root;
  llvm::SmallVector<mlir::Operation *> ops; ///< the ops that compute it, in order
  bool usesBatch = false, usesHead = false;
  unsigned cost = 0; ///< of ops that depend on the distance: 16 for a read, function or division, else 1
};

/// The maximal terms of a region: those with a user that is not a term. Integers are
/// linear forms of positions (sums, differences and constant multiples, in any width). A form with opposite
/// coefficients of query and key is a term, and so are functions of terms. `numbers`: how many arguments of the region
/// come before the positions.
llvm::SmallVector<RelativePositionTerm> findRelativePositionTerms(mlir::Region &region, unsigned numbers = 1);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_RELATIVEPOSITIONTERMS_H
