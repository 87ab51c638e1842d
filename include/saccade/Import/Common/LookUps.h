//===- LookUps.h - Elements that tensors of indices say -----------*- C++ -*-===//
#ifndef SACCADE_IMPORT_COMMON_LOOKUPS_H
#define SACCADE_IMPORT_COMMON_LOOKUPS_H

#include "saccade/Import/Common/Door.h"

namespace saccade::door {

/// Refuses indices that are no integers, and a table that has nothing to read along `dims`.
mlir::LogicalResult requireIndices(DoorOp &op, mlir::Value table, mlir::Value indices, llvm::ArrayRef<int64_t> dims);

/// `gather` of Structured.h; constant indices become slices or elements.
mlir::FailureOr<mlir::Value> lookUp(DoorOp &op, mlir::Value table, mlir::Value indices, int64_t axis);

/// Element by element of `indices`: the position of each, but for `axis`, which the index says.
mlir::FailureOr<mlir::Value> lookUpElements(DoorOp &op, mlir::Value table, mlir::Value indices, int64_t axis);

} // namespace saccade::door

#endif // SACCADE_IMPORT_COMMON_LOOKUPS_H
