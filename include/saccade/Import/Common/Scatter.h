//===- Scatter.h - Updates at positions that are elements -------*- C++ -*-===//
//
// A scatter is computed by the positions that it writes to, because structured ops write every element once: a
// reduction over the updates finds the last one to each position, or combines all of them. Updates with an index out of
// range are ignored. 16-bit floats are combined in f32.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_SCATTER_H
#define SACCADE_IMPORT_COMMON_SCATTER_H

#include "saccade/Import/Common/Frontend.h"

namespace saccade::frontend {

/// What becomes of several updates to one position, and of the element there.
struct ScatterRule {
  enum Kind { Last, Sum, Product, Lowest, Highest, Mean } kind = Last;
  /// Whether the element of the tensor takes part. Otherwise updates replace it.
  bool includesSelf = true;
};

/// torch.scatter, ONNX ScatterElements: each update goes to its own position, with the position along `axis` replaced
/// by its index. Emits an error unless indices and updates have one shape of at most that of the tensor, except along
/// `axis`, and the updates the type of the tensor.
mlir::FailureOr<mlir::Value> scatterElements(FrontendOp &op, mlir::Value tensor, mlir::Value indices,
                                             mlir::Value updates, int64_t axis, ScatterRule rule = {});

/// Update n, which is the slice n of `updates` along dimension `at`, goes to the position columns[i][n] in dimension
/// dims[i] of the tensor. The other dimensions of the updates are those of the tensor that are not in `dims`. The
/// caller must check the shapes. `rule` is Last or Sum.
mlir::Value scatterSlices(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<int64_t> dims,
                          llvm::ArrayRef<mlir::Value> columns, mlir::Value updates, int64_t at, ScatterRule rule = {});

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_SCATTER_H
