//===- RuntimeMaskInputs.h - What a mask reads, as code ---------------*- C++ -*-===//
//
// Answers the questions of the mask analysis with ops: lengths and captures, and the least and greatest elements of
// parts of captured tensors.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_RUNTIMEMASKINPUTS_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_RUNTIMEMASKINPUTS_H

#include "saccade/Dialect/Attn/Analysis/MaskBox.h"
#include <functional>

namespace saccade::attn {

/// What the mask of one step over keys reads, on tensors or on buffers.
class RuntimeMaskInputs : public MaskInputs {
public:
  /// Elements of a block of a captured tensor, along its last dimension.
  static constexpr int64_t minMaxBlock = 64;
  /// The least and the greatest element of each block of a captured tensor, as tensors of its extents, the last one
  /// divided.
  using Tables = std::function<std::pair<mlir::Value, mlir::Value>(mlir::Value capture)>;

  /// Without `tables`, elements are looked at one by one.
  explicit RuntimeMaskInputs(AccumulateOp op, Tables tables = nullptr) : op(op), tables(std::move(tables)) {}

  StagedInt length(StagedIntBuilder &b, Role role) override;
  StagedInt scalar(StagedIntBuilder &b, unsigned capture) override;
  StagedInt extent(StagedIntBuilder &b, unsigned capture, unsigned dim) override;
  /// Looks at no more than some thousand numbers, else nothing is known.
  std::optional<Interval> elements(StagedIntBuilder &b, unsigned capture, llvm::ArrayRef<Interval> place) override;

private:
  AccumulateOp op;
  Tables tables;
};

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_RUNTIMEMASKINPUTS_H
