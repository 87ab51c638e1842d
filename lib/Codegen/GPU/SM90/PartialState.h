//===- PartialState.h - Items of split-KV on sm_90a ---------------*- C++ -*-===//
//
// An item of split-KV has one chunk of keys, and rows of all query heads that share them: row i · heads + h is query i
// of head h. It starts with a state in global memory and leaves the state there, for a kernel that merges the states of
// all chunks.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_PARTIALSTATE_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_PARTIALSTATE_H

#include "WarpgroupShape.h"

namespace saccade::device {

/// Whether `storeState` supports the state of `step`, in global memory: it has no other parts than accumulator, maximum
/// and sum, and the accumulator starts as zeros and has as many columns as the fragments. `copyQueryRows` supports the
/// queries.
bool hasPartialState(attn::AccumulateOp step);

/// Whether an op of a kernel initializes the state of `step`, a step for which `hasPartialState` holds, or finalizes a
/// state in memory. The warpgroup that computes executes it, the warp that copies does not.
bool isOfPartialState(mlir::Operation *op, attn::AccumulateOp step);

/// Erases the ops in `block` for which `isOfPartialState` holds.
void erasePartialState(mlir::Block &block, attn::AccumulateOp step);

/// Lowers the ops of `block` that initialize the state of `step`. The warpgroup meets at the named barrier `barrier`
/// after each of them. The fill of the accumulator is erased, since `storeState` overwrites it.
void initPartialState(mlir::Block &block, attn::AccumulateOp step, int64_t barrier);

/// Copies the queries of `step` to their tile in shared memory at `tile` (i32), with the swizzle of bulk copies. Rows
/// and columns beyond the queries are set to 0. All threads of the warpgroup execute it; a fence of the proxy and a
/// barrier must follow.
void copyQueryRows(const Emitter &e, attn::AccumulateOp step, const WarpgroupShape &shape, mlir::Value tile);

/// Adds the state of the threads of the warpgroup to that of `step` in memory. A barrier must follow before other
/// threads read it.
void storeState(const Emitter &e, attn::AccumulateOp step, const PrivateState &state, const WarpgroupShape &shape);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_PARTIALSTATE_H
