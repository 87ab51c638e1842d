//===- ResolveExtents.h - From extents of results to those of arguments -*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_RESOLVEEXTENTS_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_RESOLVEEXTENTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace saccade::attn {

/// Replaces extents of results by extents of operands until only those of the arguments are left, and folds;
/// what computed the tensors is dead then and goes.
llvm::LogicalResult resolveExtents(mlir::func::FuncOp function);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_RESOLVEEXTENTS_H
