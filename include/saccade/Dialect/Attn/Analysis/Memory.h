//===- Memory.h - Which buffers ops view and write ----------------*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_MEMORY_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_MEMORY_H

#include "mlir/IR/Operation.h"

namespace saccade {

/// The buffer of which `memory` is a view, or `memory`.
mlir::Value getBaseMemory(mlir::Value memory);

/// Whether `op`, or an op inside of it, may write to the buffer `base` through a view of it. Values of tensors become
/// views of one buffer when they are updated in place, so what an op changes is written through its own base.
bool mayWrite(mlir::Operation *op, mlir::Value base);

} // namespace saccade

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_MEMORY_H
