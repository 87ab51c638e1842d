//===- AttentionItem.h - A work item of attention on sm_90a -------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_ATTENTIONITEM_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_ATTENTIONITEM_H

#include "WarpgroupShape.h"

namespace saccade::device {

/// Why the kernel of `step`, its only one, is not one attention with operands that tensor maps can describe, and
/// nothing else that writes memory; empty if it is. `state` is null if the state is in memory (split-KV).
llvm::StringRef findItemObstacle(attn::AccumulateOp step, const AttentionState *state);

/// Rewrites `kernel`, which has no obstacle and whose shape fits, for `shape.threads` threads in two roles: a copy of
/// its body copies operands to shared memory, the body itself computes. Both are loops over the items that a CTA takes.
/// Adds tensor maps of the operands as first parameters, and the number of items and the address of the counter of
/// items (both i64) as last ones. There is no map of the queries if `state` is null.
void emitAttentionItem(mlir::func::FuncOp kernel, attn::AccumulateOp step, AttentionState *state,
                       const WarpgroupShape &shape);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_ATTENTIONITEM_H
