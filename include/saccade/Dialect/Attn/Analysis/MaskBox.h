//===- MaskBox.h - Classification of a box of positions -----------*- C++ -*-===//
//
// Abstract interpretation of a mask region: whether it holds for all, some or none of the pairs of queries and keys in
// a box. The result is a constant for constant inputs; for run-time inputs the analysis emits code that computes it.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_MASKBOX_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_MASKBOX_H

#include "saccade/Dialect/Attn/Analysis/StagedInt.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::attn {

/// A four-dimensional box of absolute positions. No interval is empty.
struct MaskBox {
  Interval batch, head, query, key;
};

/// The result for a box. Both flags set (a partial box) is always sound.
struct Coverage {
  StagedInt mayHold = 1; ///< 0: the mask holds for no pair (empty box)
  StagedInt mayFail = 1; ///< 0: the mask holds for every pair (full box)
};

/// The inputs of a mask region other than positions.
class MaskInputs {
public:
  virtual ~MaskInputs() = default;
  /// The result of `attn.length`.
  virtual StagedInt length(StagedIntBuilder &b, Role role) = 0;
  /// A captured integer, by the number of the capture.
  virtual StagedInt scalar(StagedIntBuilder &b, unsigned capture) = 0;
  /// The extent of a captured tensor.
  virtual StagedInt extent(StagedIntBuilder &b, unsigned capture, unsigned dim) = 0;
  /// Bounds, as signed integers (i1: 0 and 1), of the elements of a captured integer tensor in the box `place`, with an
  /// interval per dimension. Positions out of bounds are clamped. Nullopt if no bound is known.
  virtual std::optional<Interval> elements(StagedIntBuilder &b, unsigned capture, llvm::ArrayRef<Interval> place) = 0;
};

/// Classifies `box`. Sound for every region: a condition that is not analyzed may hold and may fail.
///
/// Integers are affine forms of positions and *atoms* (quotients, remainders, elements of tables, ...). Each atom has
/// an interval. Equal atoms cancel, which keeps differences such as (q / 64) − (k / 64) and q − 64 · (q / 64) precise.
/// A form is valid only if no operation in it wraps; the analysis computes this condition as well.
Coverage analyzeMask(mlir::Region &mask, const MaskBox &box, MaskInputs &inputs, StagedIntBuilder &b);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_MASKBOX_H
