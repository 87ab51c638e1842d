//===- Sinks.h - The part of a sink in derivatives of attention ----*- C++ -*-===//
#ifndef SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_SINKS_H
#define SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_SINKS_H

#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::attn {

/// The map from loops over `dims` to the dimensions of a tensor that names them `names`.
mlir::AffineMap getDimMap(mlir::OpBuilder &b, llvm::ArrayRef<Dim> dims, llvm::ArrayRef<Dim> names);

/// The map from loops over the rows `rows` to the sink of `op`.
mlir::AffineMap getSinkMap(mlir::OpBuilder &b, AttentionOp op, llvm::ArrayRef<Dim> rows);

/// Emits exp(sink − lse − lseLow) · number, 0 for a row without probabilities; the sink may have another type than the
/// others.
mlir::Value emitSinkProduct(mlir::OpBuilder &b, mlir::Location loc, mlir::Value sink, mlir::Value lse,
                            mlir::Value lseLow, mlir::Value number);

} // namespace saccade::attn

#endif // SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_SINKS_H
