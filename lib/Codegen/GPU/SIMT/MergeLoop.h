//===- MergeLoop.h - Merging the states of all chunks -------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SIMT_MERGELOOP_H
#define SACCADE_LIB_CODEGEN_GPU_SIMT_MERGELOOP_H

#include "../AttentionState.h"

namespace saccade::device {

/// Lowers `op` together with the loop around it and erases the loop. Returns false, without a change, if the loop does
/// more than to merge a state of each iteration.
bool lowerMergeLoop(attn::MergeOp op);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SIMT_MERGELOOP_H
