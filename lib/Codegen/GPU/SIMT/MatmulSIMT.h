//===- MatmulSIMT.h - Matrix products on any GPU -----------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SIMT_MATMULSIMT_H
#define SACCADE_LIB_CODEGEN_GPU_SIMT_MATMULSIMT_H

#include "../Emitter.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace saccade::device {

/// Lowers `op`, a matrix product on buffers with one reduction loop: a thread sums 4 × 8 elements of a block of 64 × 64 in
/// registers, the CTA shares 16 steps of both sides in shared memory. Sums of 16-bit numbers are in f32 and rounded once.
/// False where the product has another form, and then nothing is emitted.
bool lowerMatmulSIMT(mlir::OpBuilder &b, mlir::linalg::LinalgOp op);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SIMT_MATMULSIMT_H
