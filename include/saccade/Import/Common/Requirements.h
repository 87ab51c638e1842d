//===- Requirements.h - What translators of all frontends ask of operands -*- C++ -*-===//
#ifndef SACCADE_IMPORT_COMMON_REQUIREMENTS_H
#define SACCADE_IMPORT_COMMON_REQUIREMENTS_H

#include "saccade/Import/Common/Frontend.h"

namespace saccade::frontend {

/// The rank of a tensor, which a value of the common form always has.
int64_t rankOf(mlir::Value tensor);
mlir::Type elementOf(mlir::Value tensor);

/// `axis` counted from the front; refuses one outside of −rank ... rank − 1.
mlir::FailureOr<int64_t> resolveAxis(FrontendOp &op, int64_t axis, int64_t rank);
/// All of them, each once.
mlir::FailureOr<llvm::SmallVector<int64_t>> resolveAxes(FrontendOp &op, llvm::ArrayRef<int64_t> axes, int64_t rank);
/// Refuses tensors that do not broadcast to one another.
mlir::LogicalResult requireBroadcast(FrontendOp &op, mlir::ValueRange tensors);
/// Refuses a tensor that does not broadcast to the shape of `to` as it is.
mlir::LogicalResult requireBroadcastTo(FrontendOp &op, mlir::Value tensor, mlir::Type to);
/// Refuses two extents that cannot be equal.
mlir::LogicalResult requireEqual(FrontendOp &op, int64_t found, int64_t expected, llvm::StringRef what);
/// Refuses tensors that differ in more than the extent along `axis`.
mlir::LogicalResult requireConcatenable(FrontendOp &op, mlir::ValueRange tensors, int64_t axis);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_REQUIREMENTS_H
