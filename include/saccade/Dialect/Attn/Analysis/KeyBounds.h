//===- KeyBounds.h - Keys that a range of queries attends to ------*- C++ -*-===//
//
// Reads a mask region as a conjunction of affine constraints on query and key positions, and emits bounds of the key
// loop. Conditions that are not affine remain tests in the tile, so the bounds are always sound.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_KEYBOUNDS_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_KEYBOUNDS_H

#include "mlir/IR/IRMapping.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::attn {

/// `query · q + key · k + Σ coefficient · term + constant ≥ 0`, where no term depends on q or k.
struct AffineConstraint {
  int64_t query = 0, key = 0, constant = 0;
  llvm::SmallVector<std::pair<int64_t, mlir::Value>> terms;
};

/// Half-open range of absolute positions, as index values.
struct KeyRange {
  mlir::Value begin, end;
};

/// A bound of the keys of a query, as an absolute position (index). That of the query n positions later is n · `slope`
/// larger.
struct KeyBound {
  mlir::Value position;
  int64_t slope;
  bool isEnd; ///< exclusive; otherwise the first visible key
};

/// The constraints of a mask region. A pair is visible only if every constraint holds. If `exact`, the converse holds
/// too, and the region need not be evaluated. Positions that are cast to narrow integers are below 2^30, and sums of
/// positions and captured 64-bit integers do not overflow; sums of narrower integers may wrap.
class KeyBounds {
public:
  /// Reads the mask region of `op`; without a region there are no constraints.
  explicit KeyBounds(ScoringOpInterface op);
  /// Reads `condition`, a value of a region of `op` that has the arguments `args`.
  KeyBounds(ScoringOpInterface op, const RegionArguments &args, mlir::Value condition);

  bool isExact() const { return exact; }
  llvm::ArrayRef<AffineConstraint> getConstraints() const { return constraints; }

  /// The positions of `role` within `range` that are visible to some position in [first, last] of the other role.
  /// `values` maps region arguments (batch, head, captures) to values at the insertion point; a captured tensor may be
  /// mapped to a buffer. `queryLength` and `keyLength` replace `attn.length`. The result may be empty (begin ≥ end).
  /// Constraints that do not depend on the position of `role` are ignored.
  KeyRange computeRange(mlir::OpBuilder &b, mlir::Location loc, Role role, const mlir::IRMapping &values,
                        mlir::Value queryLength, mlir::Value keyLength, mlir::Value first, mlir::Value last,
                        KeyRange range) const;

  /// The keys within `keys` that a query in [firstQuery, lastQuery] may attend to, for a batch and a head (absolute,
  /// index values) and the captures of the op.
  KeyRange computeKeyRange(mlir::OpBuilder &b, mlir::Location loc, mlir::Value batch, mlir::Value head,
                           mlir::Value queryLength, mlir::Value keyLength, mlir::Value firstQuery,
                           mlir::Value lastQuery, KeyRange keys) const;
  /// The bounds of the keys of one query by each constraint, for arguments as above; nullopt if some are not affine in
  /// the query. A slope has at most 20 bits.
  std::optional<llvm::SmallVector<KeyBound>> computeKeyBounds(mlir::OpBuilder &b, mlir::Location loc, mlir::Value batch,
                                                              mlir::Value head, mlir::Value queryLength,
                                                              mlir::Value keyLength, mlir::Value query) const;
  /// The queries within `queries` that may attend to a key in [firstKey, lastKey].
  KeyRange computeQueryRange(mlir::OpBuilder &b, mlir::Location loc, mlir::Value batch, mlir::Value head,
                             mlir::Value queryLength, mlir::Value keyLength, mlir::Value firstKey, mlir::Value lastKey,
                             KeyRange queries) const;

private:
  /// Reads a condition of a region that has the arguments `args`.
  void read(const RegionArguments &args, mlir::Value whole);
  /// The values of the region arguments for a batch and a head.
  mlir::IRMapping mapArguments(mlir::Value batch, mlir::Value head) const;

  ScoringOpInterface op;
  std::optional<RegionArguments> args; ///< none without a region
  llvm::SmallVector<AffineConstraint> constraints;
  bool exact = true;
};

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_KEYBOUNDS_H
