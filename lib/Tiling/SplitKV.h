//===- SplitKV.h - Split-KV tiling of attention -------------------*- C++ -*-===//
//
// With a few rows of queries attention is bound by memory bandwidth. Tasks then split the keys instead of the queries
// (flash-decoding; Dao et al. 2023).
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_SPLITKV_H
#define SACCADE_LIB_TILING_SPLITKV_H

#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade {

/// Emits the i1 condition that `op`, which has a `split_kv` schedule, uses it: whether its number of queries is at most
/// the schedule's. The value is a constant if the number is static.
mlir::Value usesSplitKV(mlir::OpBuilder &b, attn::AttentionOp op);

/// Tiles `op` by its `split_kv` schedule: a parallel loop computes partial states over chunks of keys, a second one
/// merges them per head from left to right into `inits` (one per result of `op`). If `isSplitKV` is false at run time,
/// both loops have trip count zero and the results are `inits`. Returns the results; `op` is not erased.
llvm::SmallVector<mlir::Value> tileSplitKV(mlir::OpBuilder &b, attn::AttentionOp op, mlir::Value isSplitKV,
                                           mlir::ValueRange inits);

} // namespace saccade

#endif // SACCADE_LIB_TILING_SPLITKV_H
