//===- AttentionItem.h - A work item of attention on sm_90a -------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_ATTENTIONITEM_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_ATTENTIONITEM_H

#include "TensorMap.h"
#include "WarpgroupShape.h"

namespace saccade::device {

/// The operands of a step of attention, as tensor maps describe them.
struct MappedOperands {
  MappedOperand query, key, value;
  bool keysEndWithTensor; ///< whether all rows of keys and values that exist are within the length
};

/// Whether a kernel is one attention that warpgroups can compute: with one step, and nothing else that reads or writes
/// memory. Returns its operands. The shape must fit.
std::optional<MappedOperands> findMappedOperands(mlir::func::FuncOp kernel, AttentionState &state);

/// Rewrites `kernel`, whose only attention is `state`, for `shape.threads` threads in two roles: a copy of its body
/// copies operands to shared memory, the body itself computes. Adds three tensor maps as first parameters.
void emitAttentionItem(mlir::func::FuncOp kernel, AttentionState &state, const WarpgroupShape &shape,
                       const MappedOperands &operands);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_ATTENTIONITEM_H
