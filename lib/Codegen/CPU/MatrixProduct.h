//===- MatrixProduct.h - Matmuls of blocks -------------------------*- C++ -*-===//
//
// `bfmmla` of AArch64 multiplies 2 × 4 elements of an LHS by 4 × 2 of an RHS in each 128 bits of its registers, and
// adds the products, in pairs like `bfdot`, to 2 × 2 sums in f32. A block holds four consecutive elements along K (two
// k-packs of pairs, see Pack.h) of two rows of the LHS, or of two columns of the RHS: a unit of each (ProductForm.h).
// Blocks along K are numbered by q, and h is the number of a k-pack within a block. Elements beyond the end of K are 0.
//
// `smmla` does the same for eight int8 along K and sums in i32. A block then holds two k-packs of four.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_MATRIXPRODUCT_H
#define SACCADE_LIB_CODEGEN_CPU_MATRIXPRODUCT_H

#include "Emitter.h"

namespace saccade::cpu {

/// Elements along K of a row of a block of bf16, or of pairs of int8.
inline constexpr int64_t blockDepth = 4;

/// dst[r / 2][4q + 2 (r % 2) + h] = k-pack 2q + h of row min(r, rows − 1) of `src`, for r < paddedRows and
/// the blocks of a row. `src` is memref<?xD> with any strides, of bf16 or of k-packs in the bits of f32. `dst` is
/// memref<(R / 2)x(4Q)>. `signMask` (an i32, or null) is XORed into every k-pack.
void emitPackRowBlocks(Emitter &e, mlir::Value src, mlir::Value rows, mlir::Value paddedRows, mlir::Value dst,
                       mlir::Value signMask);

/// dst[r / L][q][2 (r % L) + h] = k-pack 2q + h of row min(r, rows − 1) of `src`, for the panels (memref<PxQx(2L)>)
/// that hold the rows [0, rows), and the blocks that `src` has.
void emitPackPanelBlocks(Emitter &e, mlir::Value src, mlir::Value rows, mlir::Value dst);

/// dst[q][2c + h] = k-pack 2q + h of column c of `src`. `dst` is memref<Qx(2C)>; columns that `src` does not have
/// become 0.
void emitPackColumnBlocks(Emitter &e, mlir::Value src, mlir::Value dst);

/// Stores a register of k-packs, or if not `isWhole` its first half, as parts of blocks from column `column` (4q) of a
/// row of blocks on: those of row `row` (0 or 1) of each block.
void emitStoreRowOfBlocks(Emitter &e, mlir::Value kPacks, mlir::Value dst, mlir::ValueRange at, mlir::Value row,
                          bool isWhole = true);

/// Loads the block at `at` into each 128 bits of a register.
mlir::Value emitLoadBlock(Emitter &e, mlir::Value memref, mlir::ValueRange at);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_MATRIXPRODUCT_H
