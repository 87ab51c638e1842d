//===- RelativePositionTerms.h - What depends on the distance alone -------*- C++ -*-===//
//
// Finds the parts of a region that are the same for all pairs of one batch and head whose key − query is the same.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_RELATIVEPOSITIONTERMS_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_RELATIVEPOSITIONTERMS_H

#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::attn {

/// Marks a `tensor.extract` in a region whose place is known to exist, also for positions a little outside of the operands.
inline constexpr llvm::StringLiteral inBoundsName = "attn.in_bounds";

/// A value of a region that is a function of batch, head and key − query.
struct RelativePositionTerm {
  mlir::Value root;
  llvm::SmallVector<mlir::Operation *> ops; ///< what computes it, in order, and nothing else
  bool usesBatch = false, usesHead = false;
  unsigned cost = 0; ///< of its ops that depend on the distance: one an op of a register, 16 a read, function or division
};

/// The largest such values of a region that takes a score or a weight: numbers that something reads which is none. Integers
/// count as long as they are sums, differences and constant multiples of positions, in any width, and all functions of
/// those in which query and key stand with opposite factors.
llvm::SmallVector<RelativePositionTerm> findRelativePositionTerms(mlir::Region &region);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_RELATIVEPOSITIONTERMS_H
