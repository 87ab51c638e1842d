//===- AttentionItem.h - A work item of attention on sm_90a -------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_ATTENTIONITEM_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_ATTENTIONITEM_H

#include "WarpgroupShape.h"

namespace saccade::device {

/// Whether the kernel of `state` is one attention with one step, operands that tensor maps can describe, and nothing
/// else that writes memory.
bool isAttentionItem(const AttentionState &state);

/// Rewrites `kernel`, whose `state` is an item of attention and whose shape fits, for `shape.threads` threads in two
/// roles: a copy of its body copies operands to shared memory, the body itself computes. Both are loops over the items
/// that a CTA takes. Adds three tensor maps as first parameters, and the number of items and the address of the counter
/// of items (both i64) as last ones.
void emitAttentionItem(mlir::func::FuncOp kernel, AttentionState &state, const WarpgroupShape &shape);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_ATTENTIONITEM_H
