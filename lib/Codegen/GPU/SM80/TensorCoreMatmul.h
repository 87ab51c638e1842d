//===- TensorCoreMatmul.h - Matmuls on tensor cores ---------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_TENSORCOREMATMUL_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_TENSORCOREMATMUL_H

#include "../Emitter.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace saccade::device {

/// Lowers `op`, a matmul of f16 or bf16 buffers in global or shared memory with one reduction loop, to mma.sync. The
/// CTA computes blocks of at most 64 × 64 or 32 × 128, in f32, rounded once. Constant bounds of the extents, such as
/// those of a tile, select smaller blocks. Fragments of buffers whose extents are multiples of the block are loaded
/// where they are. Other tiles of LHS and RHS are copied to shared memory of their own: from global memory by cp.async
/// if rows are 16-byte aligned, else element by element. Returns false, and emits nothing, if `op` is not such a
/// matmul.
bool lowerTensorCoreMatmul(mlir::OpBuilder &b, mlir::linalg::LinalgOp op);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_TENSORCOREMATMUL_H
