//===- Pack.h - Operands in the layout the microkernels read -----*- C++ -*-===//
//
// Packing makes words of elements, strides static and, for the right side of a product, lanes of rows. After
// it no kernel knows of layouts and strides.
//
// A word is what a lane multiplies in one step: an element in the compute type, or two bf16, neighbours
// along the reduced dimension and untouched, in the bits of an f32 that is only moved. `step` is how many
// elements it holds; 0 stands for a neighbour that does not exist.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_PACK_H
#define SACCADE_LIB_CODEGEN_CPU_PACK_H

#include "Emitter.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::cpu {

/// dst[r][w] = word w of row min(r, rows − 1) of `src` (memref<?xD>, any strides, f16, bf16, f32 or f64), for
/// r < paddedRows. `dst` is memref<RxW>. The bits of `flip` (an integer as wide as a word, or null) change their value.
void emitPackRows(Emitter &e, mlir::Value src, mlir::Value rows, mlir::Value paddedRows, mlir::Value dst, unsigned step,
                  mlir::Value signMask = nullptr);

/// dst[w][c] = word w of column c of `src`. `dst` is memref<WxC>; what it has more columns becomes 0.
void emitPackColumns(Emitter &e, mlir::Value src, mlir::Value dst, unsigned step);

/// dst[r / L][w][r % L] = word w of row min(r, rows − 1) of `src`, for the panels (memref<PxWxL>) that hold the rows
/// [0, rows).
void emitPackPanels(Emitter &e, mlir::Value src, mlir::Value rows, mlir::Value dst, unsigned step);

/// dst[r][c] = src[r][c] for all of `dst` (memref<?x?>, any strides, any float type).
void emitUnpackRows(Emitter &e, mlir::Value src, mlir::Value dst);

/// The 2-D memref with its dimensions exchanged: a view.
mlir::Value emitTransposed(Emitter &e, mlir::Value memref);

/// A matrix with the dimensions s and d of an operand that is named `dims` as a memref of positions × depth.
mlir::Value emitPositions(Emitter &e, mlir::Value operand, attn::DimsAttr dims);

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
