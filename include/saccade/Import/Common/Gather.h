//===- Gather.h - Elements that tensors of indices say -----------*- C++ -*-===//
#ifndef SACCADE_IMPORT_COMMON_GATHER_H
#define SACCADE_IMPORT_COMMON_GATHER_H

#include "saccade/Import/Common/Frontend.h"

namespace saccade::frontend {

/// Refuses indices that are no integers, and a table that has nothing to read along `dims`.
mlir::LogicalResult requireIndices(FrontendOp &op, mlir::Value table, mlir::Value indices, llvm::ArrayRef<int64_t> dims);

/// `gather` of Structured.h; constant indices become slices or elements.
mlir::FailureOr<mlir::Value> gatherSlices(FrontendOp &op, mlir::Value table, mlir::Value indices, int64_t axis);

/// Element by element of `indices`: the position of each, but for `axis`, which the index says.
mlir::FailureOr<mlir::Value> gatherElements(FrontendOp &op, mlir::Value table, mlir::Value indices, int64_t axis);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_GATHER_H
