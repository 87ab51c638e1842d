//===- MaskBox.h - What a mask says about a box of positions ------*- C++ -*-===//
//
// Abstract interpretation of a mask region: does it hold for all, for some or for no pair of queries and keys in a box?
// Over constants it answers; over run-time numbers it emits the code that answers.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_MASKBOX_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_MASKBOX_H

#include "saccade/Dialect/Attn/Analysis/StagedInt.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::attn {

/// Absolute positions, a box in four dimensions. No interval is empty.
struct MaskBox {
  Interval batch, head, query, key;
};

/// What can be true somewhere in a box. Both is always a sound answer: the box is partial.
struct Coverage {
  StagedInt mayHold = 1; ///< 0: the mask holds for no pair, the box is empty
  StagedInt mayFail = 1; ///< 0: it holds for every pair, the box is full
};

/// What a region reads besides positions.
class MaskInputs {
public:
  virtual ~MaskInputs() = default;
  /// What `attn.length` answers.
  virtual StagedInt length(StagedIntBuilder &b, Role role) = 0;
  /// A captured integer, by the number of the capture.
  virtual StagedInt scalar(StagedIntBuilder &b, unsigned capture) = 0;
  /// The extent of a captured tensor.
  virtual StagedInt extent(StagedIntBuilder &b, unsigned capture, unsigned dim) = 0;
  /// Bounds, as signed numbers (i1: 0 and 1), of the elements of a captured tensor of integers in a box of places, an
  /// interval a dimension. Places that do not exist count as any that do. Nothing where no bound is known.
  virtual std::optional<Interval> elements(StagedIntBuilder &b, unsigned capture, llvm::ArrayRef<Interval> place) = 0;
};

/// What the mask region says about `box`. Sound for every region: what is not understood may hold and may fail.
///
/// Integers are affine forms of the positions and of *atoms* (quotients, remainders, elements of tables, ...), each
/// with an interval; equal atoms cancel, so that (q / 64) − (k / 64) or q − 64 · (q / 64) keep what they have in
/// common. A form stands for its value only where no step to it wraps; that is a truth value of its own, computed
/// along.
Coverage analyzeMask(mlir::Region &mask, const MaskBox &box, MaskInputs &inputs, StagedIntBuilder &b);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_MASKBOX_H
