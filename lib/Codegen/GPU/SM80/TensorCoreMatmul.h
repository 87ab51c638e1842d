//===- TensorCoreMatmul.h - Matrix products on the tensor cores --------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_TENSORCOREMATMUL_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_TENSORCOREMATMUL_H

#include "../Emitter.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace saccade::device {

/// Lowers `op`, a matrix product on buffers of f16 or bf16 in global memory with one reduction loop, by mma.sync: a warp sums
/// 32 × 32 of a block of 64 × 64 in f32, which is rounded once; both sides come asynchronously, 64 steps at a time, where
/// rows are aligned to 16 bytes, else element by element. False where the product has another form, and then nothing is
/// emitted.
bool lowerTensorCoreMatmul(mlir::OpBuilder &b, mlir::linalg::LinalgOp op);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_TENSORCOREMATMUL_H
