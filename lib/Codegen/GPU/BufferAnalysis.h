//===- BufferAnalysis.h - Extents and contents of buffers ---------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_BUFFERANALYSIS_H
#define SACCADE_LIB_CODEGEN_GPU_BUFFERANALYSIS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace saccade::device {

/// Whether `buffer` is or views a buffer of the kernel, which attn-plan-shared-memory will place in shared memory.
bool isShared(mlir::Value buffer);

/// A constant that the extent of `loop` in `op`, an op on buffers, does not exceed: a static extent, or that of the
/// kernel's buffer that an operand is a part of, such as the buffer of a tile. nullopt if there is none.
std::optional<int64_t> boundOfExtent(mlir::linalg::LinalgOp op, unsigned loop);

/// If the result of `op`, a matmul on buffers, was filled with zeros before and not used since, erases that fill and
/// returns true: then the sums are the result and need not be added to it.
bool takeZeroFill(mlir::linalg::LinalgOp op);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_BUFFERANALYSIS_H
