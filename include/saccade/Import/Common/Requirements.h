//===- Requirements.h - Operand checks shared by all frontends --*- C++ -*-===//
#ifndef SACCADE_IMPORT_COMMON_REQUIREMENTS_H
#define SACCADE_IMPORT_COMMON_REQUIREMENTS_H

#include "saccade/Import/Common/Frontend.h"

namespace saccade::frontend {

/// The rank of a tensor; values in linalg-on-tensors form are always ranked.
int64_t rankOf(mlir::Value tensor);
mlir::Type elementOf(mlir::Value tensor);

/// `axis` as a non-negative number; emits an error if it is outside of [−rank, rank − 1].
mlir::FailureOr<int64_t> resolveAxis(FrontendOp &op, int64_t axis, int64_t rank);
/// Resolves all axes; emits an error if one occurs twice.
mlir::FailureOr<llvm::SmallVector<int64_t>> resolveAxes(FrontendOp &op, llvm::ArrayRef<int64_t> axes, int64_t rank);
/// Emits an error if the tensors do not broadcast to a common shape.
mlir::LogicalResult requireBroadcast(FrontendOp &op, mlir::ValueRange tensors);
/// Emits an error if the tensor does not broadcast to the shape of `to`.
mlir::LogicalResult requireBroadcastTo(FrontendOp &op, mlir::Value tensor, mlir::Type to);
/// Emits an error if two extents are static and differ. `what` describes them in the message.
mlir::LogicalResult requireEqual(FrontendOp &op, int64_t found, int64_t expected, llvm::StringRef what);
/// Emits an error if the tensors differ in more than the extent along `axis`.
mlir::LogicalResult requireConcatenable(FrontendOp &op, mlir::ValueRange tensors, int64_t axis);

/// Appends a result of a translator, or propagates failure.
mlir::LogicalResult append(mlir::FailureOr<mlir::Value> result, llvm::SmallVectorImpl<mlir::Value> &results);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_REQUIREMENTS_H
