//===- MergeWarps.h - Merging the states of warps -----------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_MERGEWARPS_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_MERGEWARPS_H

#include "AttentionShape.h"

namespace saccade::device {

/// Merges the states that the warps of a CTA hold for the same rows, in the order of the warps, into the state of `op`
/// in memory. Ends with a barrier.
void mergeWarps(const Emitter &e, attn::AccumulateOp op, const PrivateState &state, const AttentionShape &shape);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_MERGEWARPS_H
