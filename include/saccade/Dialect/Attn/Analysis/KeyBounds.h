//===- KeyBounds.h - Which keys a range of queries can reach -----*- C++ -*-===//
//
// Reads a mask region as a conjunction of affine constraints on query and key positions, and turns
// them into bounds of the key loop. What it cannot read stays a test in the tile: always sound.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_KEYBOUNDS_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_KEYBOUNDS_H

#include "saccade/Dialect/Attn/IR/Attn.h"
#include "mlir/IR/IRMapping.h"

namespace saccade::attn {

/// `query · q + key · k + Σ coefficient · term + constant ≥ 0`, where no term depends on q or k.
struct AffineConstraint {
  int64_t query = 0, key = 0, constant = 0;
  llvm::SmallVector<std::pair<int64_t, mlir::Value>> terms;
};

/// Half-open range of absolute key positions, as index values.
struct KeyRange {
  mlir::Value begin, end;
};

/// A mask region as constraints. The region allows a pair only if every constraint holds; if `exact`, the converse
/// holds too and the region need not be evaluated at all.
class KeyBounds {
public:
  /// Reads the mask region of `op`; no region is the empty conjunction.
  explicit KeyBounds(ScoringOpInterface op);

  bool isExact() const { return exact; }
  llvm::ArrayRef<AffineConstraint> getConstraints() const { return constraints; }

  /// The keys within `keys` that some query in [firstQuery, lastQuery] may see. `values` maps region arguments
  /// (batch, head, captures) to what they are here; a captured tensor may be mapped to a buffer. `queryLength` and
  /// `keyLength` answer `attn.length`. The result may be empty (begin ≥ end).
  KeyRange reach(mlir::OpBuilder &b, mlir::Location loc, const mlir::IRMapping &values, mlir::Value queryLength,
                 mlir::Value keyLength, mlir::Value firstQuery, mlir::Value lastQuery, KeyRange keys) const;

private:
  mlir::Region *mask;
  llvm::SmallVector<AffineConstraint> constraints;
  bool exact = true;
};

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_KEYBOUNDS_H
