//===- SplitKV.h - Attention that reads keys and values once --*- C++ -*-===//
//
// With one or a few queries attention is bound by memory. Then tasks are cut along keys instead of queries.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_SPLITKV_H
#define SACCADE_LIB_TILING_SPLITKV_H

#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade {

/// Whether `op`, which has a `few` schedule, has few queries: a constant (i1) where that is known.
mlir::Value usesSplitKV(mlir::OpBuilder &b, attn::AttentionOp op);

/// Emits `op` cut by its `few` schedule: parallel states over chunks of keys, then for each head their merge from left to
/// right, written into `inits` (one a result of `op`). Where `isSplitKV` does not hold, both loops are empty and the results
/// are `inits`. Returns the results; `op` stays.
llvm::SmallVector<mlir::Value> tileSplitKV(mlir::OpBuilder &b, attn::AttentionOp op, mlir::Value isSplitKV,
                                              mlir::ValueRange inits);

} // namespace saccade

#endif // SACCADE_LIB_TILING_SPLITKV_H
