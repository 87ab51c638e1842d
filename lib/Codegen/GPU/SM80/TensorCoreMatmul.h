//===- TensorCoreMatmul.h - Matmuls on tensor cores ---------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_TENSORCOREMATMUL_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_TENSORCOREMATMUL_H

#include "../Emitter.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace saccade::device {

/// Lowers `op`, a matmul of f16 or bf16 buffers in global memory with one reduction loop, to mma.sync. The CTA computes
/// blocks of 64 × 64; a warp accumulates 32 × 32 in f32, rounded once. Tiles of LHS and RHS with K = 64 are copied by
/// cp.async if their rows are 16-byte aligned, else element by element. Returns false, and emits nothing, if `op` is
/// not such a matmul.
bool lowerTensorCoreMatmul(mlir::OpBuilder &b, mlir::linalg::LinalgOp op);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_TENSORCOREMATMUL_H
