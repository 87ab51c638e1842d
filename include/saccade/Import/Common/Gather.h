//===- Gather.h - Gather ops with checked operands --------------*- C++ -*-===//
#ifndef SACCADE_IMPORT_COMMON_GATHER_H
#define SACCADE_IMPORT_COMMON_GATHER_H

#include "saccade/Import/Common/Frontend.h"

namespace saccade::frontend {

/// Emits an error if `indices` are not integers or if `table` is empty along one of `dims`.
mlir::LogicalResult requireIndices(FrontendOp &op, mlir::Value table, mlir::Value indices,
                                   llvm::ArrayRef<int64_t> dims);

/// Checked version of `gather` in Structured.h (ONNX Gather, torch.index_select). Constant indices become slices or
/// known elements.
mlir::FailureOr<mlir::Value> gatherSlices(FrontendOp &op, mlir::Value table, mlir::Value indices, int64_t axis);

/// ONNX GatherElements, torch.gather: result[i] = table[i with i[axis] replaced by indices[i]].
mlir::FailureOr<mlir::Value> gatherElements(FrontendOp &op, mlir::Value table, mlir::Value indices, int64_t axis);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_GATHER_H
