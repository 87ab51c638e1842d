//===- AttentionStep.h - A step of attention on the tensor cores --*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_ATTENTIONSTEP_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_ATTENTIONSTEP_H

#include "AttentionShape.h"

namespace saccade::device {

/// Folds the keys of `op` into the thread's part of the state; `op` stays. Without `hasResult` nobody asks for what is
/// accumulated. All threads have read what is shared of the last step when it returns, but for its values.
void computeStep(Emitter e, attn::AccumulateOp op, const PrivateState &state, const AttentionShape &shape,
                 bool hasResult);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_ATTENTIONSTEP_H
