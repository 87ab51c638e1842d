//===- ResolveExtents.h - Extents of results from those of arguments -*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_RESOLVEEXTENTS_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_RESOLVEEXTENTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace saccade::attn {

/// Rewrites extents of results in terms of extents of arguments, folds them, and erases the dead ops that computed the
/// tensors.
llvm::LogicalResult resolveExtents(mlir::func::FuncOp function);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_RESOLVEEXTENTS_H
