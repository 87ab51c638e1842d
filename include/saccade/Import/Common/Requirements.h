//===- Requirements.h - What translators of all doors ask of operands -*- C++ -*-===//
#ifndef SACCADE_IMPORT_COMMON_REQUIREMENTS_H
#define SACCADE_IMPORT_COMMON_REQUIREMENTS_H

#include "saccade/Import/Common/Door.h"

namespace saccade::door {

/// The rank of a tensor, which a value of the common form always has.
int64_t rankOf(mlir::Value tensor);
mlir::Type elementOf(mlir::Value tensor);

/// `axis` counted from the front; refuses one outside of −rank ... rank − 1.
mlir::FailureOr<int64_t> resolveAxis(DoorOp &op, int64_t axis, int64_t rank);
/// All of them, each once.
mlir::FailureOr<llvm::SmallVector<int64_t>> resolveAxes(DoorOp &op, llvm::ArrayRef<int64_t> axes, int64_t rank);
/// Refuses tensors that do not broadcast to one another.
mlir::LogicalResult requireBroadcast(DoorOp &op, mlir::ValueRange tensors);
/// Refuses a tensor that does not broadcast to the shape of `to` as it is.
mlir::LogicalResult requireStretch(DoorOp &op, mlir::Value tensor, mlir::Type to);
/// Refuses two extents that cannot be equal.
mlir::LogicalResult requireEqual(DoorOp &op, int64_t found, int64_t wanted, llvm::StringRef what);
/// Refuses tensors that differ in more than the extent along `axis`.
mlir::LogicalResult requireJoinable(DoorOp &op, mlir::ValueRange tensors, int64_t axis);

} // namespace saccade::door

#endif // SACCADE_IMPORT_COMMON_REQUIREMENTS_H
