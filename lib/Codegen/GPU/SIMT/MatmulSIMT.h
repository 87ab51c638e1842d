//===- MatmulSIMT.h - Matmuls without tensor cores ----------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SIMT_MATMULSIMT_H
#define SACCADE_LIB_CODEGEN_GPU_SIMT_MATMULSIMT_H

#include "../Emitter.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace saccade::device {

/// Lowers `op`, a matmul on buffers with one reduction loop. The CTA computes blocks of 64 × 64, or
/// smaller ones if the result is, with 16 columns of LHS and rows of RHS in shared memory; a thread accumulates at most
/// 4 × 8 elements in registers. 16-bit types are accumulated in
/// f32 and rounded once. Returns false, and emits nothing, if `op` is not such a matmul.
bool lowerMatmulSIMT(mlir::OpBuilder &b, mlir::linalg::LinalgOp op);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SIMT_MATMULSIMT_H
