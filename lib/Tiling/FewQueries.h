//===- FewQueries.h - Attention that reads keys and values once --*- C++ -*-===//
//
// With one or a few queries attention is bound by memory. Then tasks are cut along keys instead of queries.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_FEWQUERIES_H
#define SACCADE_LIB_TILING_FEWQUERIES_H

#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade {

/// Whether `op`, which has a `few` schedule, has few queries: a constant (i1) where that is known.
mlir::Value hasFewQueries(mlir::OpBuilder &b, attn::AttentionOp op);

/// Emits `op` cut by its `few` schedule: parallel states over chunks of keys, then for each head their merge from left to
/// right, written into `inits` (one a result of `op`). Where `isFew` does not hold, both loops are empty and the results
/// are `inits`. Returns the results; `op` stays.
llvm::SmallVector<mlir::Value> tileFewQueries(mlir::OpBuilder &b, attn::AttentionOp op, mlir::Value isFew,
                                              mlir::ValueRange inits);

} // namespace saccade

#endif // SACCADE_LIB_TILING_FEWQUERIES_H
