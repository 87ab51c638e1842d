//===- MatmulEpilogue.h - The results of a tile of a matmul -------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_MATMULEPILOGUE_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_MATMULEPILOGUE_H

#include "MatmulItem.h"

namespace saccade::device {

/// A part of the tile of a CTA: its first row and column in the tile (i32), and `exists` (i1): whether the part
/// contains elements of the tile; null if it always does.
struct MatmulPart {
  mlir::Value row, column, exists = {};
};

/// Evaluates the ops of an item for the 16 rows of a warp, whose sums are in shared memory at `sums` (i32, of the first
/// row). A thread computes eight columns of a row at a time, so that its accesses are 16 bytes where operands are
/// aligned. All lanes of the warp take part; `part` begins with the first row of the warp.
void emitMatmulEpilogue(Emitter &e, const MatmulItem &item, const MatmulShape &shape, mlir::Value sums,
                        const MatmulPart &part);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_MATMULEPILOGUE_H
