//===- MatmulEpilogue.h - The results of a tile of a matmul -------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_MATMULEPILOGUE_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_MATMULEPILOGUE_H

#include "MatmulItem.h"

namespace saccade::device {

/// Evaluates the ops of an item for the 16 rows of a warp, whose sums are in shared memory at `sums` (i32, of the first
/// row). A thread computes eight columns of a row at a time, so that its accesses are 16 bytes where operands are
/// aligned. All lanes of the warp take part; `firstRow` (i32) is that of the warp in the tile.
void emitMatmulEpilogue(Emitter &e, const MatmulItem &item, const MatmulShape &shape, mlir::Value sums,
                        mlir::Value firstRow);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_MATMULEPILOGUE_H
