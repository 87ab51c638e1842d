//===- Matmul.h - Matmuls with checked operands -----------------*- C++ -*-===//
//
// 16-bit floats are accumulated in f32. Transposed operands are expressed in the indexing maps, not copied.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_MATMUL_H
#define SACCADE_IMPORT_COMMON_MATMUL_H

#include "saccade/Import/Common/Frontend.h"

namespace saccade::frontend {

/// Checked version of `matmul` in Structured.h.
mlir::FailureOr<mlir::Value> importMatmul(FrontendOp &op, mlir::Value lhs, mlir::Value rhs);

/// Parameters of a general matrix multiply (BLAS gemm).
struct GemmParams {
  bool transA = false, transB = false; // whether the operand is stored transposed
  double alpha = 1, beta = 1;          // factors of the product and of the bias
  mlir::Value bias;                    // broadcast to the product; may be null
};

/// alpha · lhs · rhs + beta · bias. `rhs` is a matrix; `lhs` is a matrix if `transA` is set, and may otherwise have
/// leading dimensions. The bias is added in the accumulator type, and ignored if beta is 0.
mlir::FailureOr<mlir::Value> importGemm(FrontendOp &op, mlir::Value lhs, mlir::Value rhs, const GemmParams &params);
/// alpha · lhs · rhs + beta · bias with batch dimensions as in `importMatmul`. Transposition is not supported.
mlir::FailureOr<mlir::Value> importBatchedGemm(FrontendOp &op, mlir::Value lhs, mlir::Value rhs,
                                               const GemmParams &params);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_MATMUL_H
