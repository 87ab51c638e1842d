//===- RuntimeMaskInputs.h - Run-time inputs of a mask ----------------*- C++ -*-===//
//
// Emits the inputs of the mask analysis as ops: lengths and captures, and minima and maxima of parts of captured
// tensors.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_RUNTIMEMASKINPUTS_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_RUNTIMEMASKINPUTS_H

#include "saccade/Dialect/Attn/Analysis/MaskBox.h"
#include <functional>

namespace saccade::attn {

/// The inputs of the mask of a step over keys, on tensors or on buffers.
class RuntimeMaskInputs : public MaskInputs {
public:
  /// Elements of a block of a captured tensor, along its last dimension.
  static constexpr int64_t minMaxBlock = 64;
  /// Returns the minimum and maximum of each block of a captured tensor: two tensors with its extents, the last one
  /// divided by `minMaxBlock`.
  using BlockMinMax = std::function<std::pair<mlir::Value, mlir::Value>(mlir::Value capture)>;

  /// Adds the tables of captures of `op` to its captures, for `attachedTables`.
  static void attachTables(AccumulateOp op, llvm::ArrayRef<unsigned> captures, const BlockMinMax &tables);
  /// The tables among the captures of `op`; null for a capture without tables.
  static BlockMinMax attachedTables(ScoringOpInterface op);

  /// All elements of captures without tables are read.
  explicit RuntimeMaskInputs(ScoringOpInterface op, BlockMinMax blockMinMax = nullptr)
      : op(op), blockMinMax(std::move(blockMinMax)) {}

  StagedInt length(StagedIntBuilder &b, Role role) override;
  StagedInt scalar(StagedIntBuilder &b, unsigned capture) override;
  StagedInt extent(StagedIntBuilder &b, unsigned capture, unsigned dim) override;
  /// Reads at most `maxElementReads` elements at run time; for larger boxes the bounds are those of the type.
  std::optional<Interval> elements(StagedIntBuilder &b, unsigned capture, llvm::ArrayRef<Interval> place) override;

private:
  ScoringOpInterface op;
  BlockMinMax blockMinMax;
};

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_RUNTIMEMASKINPUTS_H
