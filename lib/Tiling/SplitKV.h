//===- SplitKV.h - Split-KV tiling of attention -------------------*- C++ -*-===//
//
// With a few rows of queries attention is bound by memory bandwidth. Tasks then split the keys instead of the queries
// (flash-decoding; Dao et al. 2023).
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_SPLITKV_H
#define SACCADE_LIB_TILING_SPLITKV_H

#include "OutputEpilogue.h"
#include "SplitPlan.h"

namespace saccade {

/// Tiles the sequences of `op` that its `split_kv` schedule applies to: a parallel loop over the items of the plan
/// computes partial states, a second one merges them per head from left to right into `inits` (one per result of `op`).
/// Rows of other sequences are left as they are in `inits`. If `isUsed` (null means true) is false at run time, no task
/// runs. `onDevice`: see SplitPlan. `epilogue` is applied to the output, null without one. Returns the results; `op` is
/// not erased.
llvm::SmallVector<mlir::Value> tileSplitKV(mlir::OpBuilder &b, attn::AttentionOp op, Sequences &sequences,
                                           mlir::Value isUsed, mlir::ValueRange inits, bool onDevice,
                                           OutputEpilogue *epilogue = nullptr);

} // namespace saccade

#endif // SACCADE_LIB_TILING_SPLITKV_H
