//===- Pack.h - Operands in the layout the microkernels read -----*- C++ -*-===//
//
// Packing converts to the compute type, makes strides static and, for the right side of a product,
// turns rows into lanes. After it no kernel knows of layouts, strides or 16-bit types.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_PACK_H
#define SACCADE_LIB_CODEGEN_CPU_PACK_H

#include "Emitter.h"

namespace saccade::cpu {

/// dst[r][c] = scale · src[min(r, rows − 1)][c] for r < paddedRows and the columns of `src` (memref<?xD>, any strides, f16,
/// bf16, f32 or f64). With `zeroRest` the further columns of `dst` (memref<RxC>) become 0. `scale` may be null.
void emitPackRows(Emitter &e, mlir::Value src, mlir::Value rows, mlir::Value paddedRows, mlir::Value dst,
                  mlir::Value scale, bool zeroRest = false);

/// dst[r / L][c][r % L] = src[min(r, rows − 1)][c] for the panels (memref<PxDxL>) that hold the rows [0, rows).
void emitPackPanels(Emitter &e, mlir::Value src, mlir::Value rows, mlir::Value dst);

/// dst[r][c] = src[r][c] for all of `dst` (memref<?x?>, any strides, any float type).
void emitUnpackRows(Emitter &e, mlir::Value src, mlir::Value dst);

/// The 2-D memref with its dimensions exchanged: a view.
mlir::Value emitTransposed(Emitter &e, mlir::Value memref);

/// The value in the compute type.
mlir::Value emitToCompute(Emitter &e, mlir::Value value);
/// The value (scalar or vector) in `elementType`.
mlir::Value emitFromCompute(Emitter &e, mlir::Value value, mlir::Type elementType);

/// Runs `contiguous` with the same 2-D memref whose inner stride is known to be 1 where that holds at run time, else
/// `strided`.
void emitByInnerStride(Emitter &e, mlir::Value memref, llvm::function_ref<void(mlir::Value)> contiguous,
                       llvm::function_ref<void()> strided);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_PACK_H
