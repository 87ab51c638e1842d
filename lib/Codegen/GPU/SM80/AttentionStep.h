//===- AttentionStep.h - attn.accumulate on tensor cores ----------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_ATTENTIONSTEP_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_ATTENTIONSTEP_H

#include "AttentionShape.h"

namespace saccade::device {

/// Emits code that accumulates the keys of `op` into the private state; `op` is not erased. Without `hasResult` the
/// accumulator is not computed. On exit all threads have finished reading shared memory, except the last value tile.
void computeStep(const Emitter &e, attn::AccumulateOp op, const PrivateState &state, const AttentionShape &shape,
                 bool hasResult);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_ATTENTIONSTEP_H
