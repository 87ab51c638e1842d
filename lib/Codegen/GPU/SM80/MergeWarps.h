//===- MergeWarps.h - The state of warps with parts of the keys ----*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_MERGEWARPS_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_MERGEWARPS_H

#include "AttentionShape.h"

namespace saccade::device {

/// Joins the states that the warps of a CTA hold of the same rows, from the first warp to the last, with the state in memory
/// that `op` works on, which is written. All threads see it afterwards.
void mergeWarps(Emitter e, attn::AccumulateOp op, const PrivateState &state, const AttentionShape &shape);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_MERGEWARPS_H
