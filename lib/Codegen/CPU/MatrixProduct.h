//===- MatrixProduct.h - Matmuls of blocks -------------------------*- C++ -*-===//
//
// `bfmmla` of AArch64 multiplies 2 × 4 elements of an LHS by 4 × 2 of an RHS in each 128 bits of its registers, and
// adds the products, in pairs like `bfdot`, to 2 × 2 sums in f32. A block holds four consecutive elements along K (two
// k-packs of pairs, see Pack.h) of two rows of the LHS, or of two columns of the RHS. Blocks along K are numbered by q,
// and h is the number of a k-pack within a block. Elements beyond the end of K are 0.
//
// `smmla` does the same for eight int8 along K and sums in i32. A block then holds two k-packs of four.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_MATRIXPRODUCT_H
#define SACCADE_LIB_CODEGEN_CPU_MATRIXPRODUCT_H

#include "Microkernel.h"

namespace saccade::cpu {

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

/// The memory of a matmul's packed operands, for `depth` blocks or k-packs along K: rows of the LHS, whose number is
/// even, and panels of as many columns of the RHS as two registers have lanes. `depthOfProduct`: see CPUTarget.
llvm::SmallVector<int64_t> packedRowsShape(unsigned depthOfProduct, int64_t rows, int64_t depth);
llvm::SmallVector<int64_t> packedPanelsShape(Emitter &e, unsigned depthOfProduct, int64_t panels, int64_t depth);
/// emitPackRowBlocks and emitPackPanelBlocks, or if K is not packed in blocks, emitPackRows and emitPackPanels.
void emitPackLHS(Emitter &e, unsigned depthOfProduct, mlir::Value src, mlir::Value rows, mlir::Value paddedRows,
                 mlir::Value dst, mlir::Value signMask = nullptr);
void emitPackRHS(Emitter &e, unsigned depthOfProduct, mlir::Value src, mlir::Value rows, mlir::Value dst);

/// Stores a register of k-packs, or if not `isWhole` its first half, as parts of blocks from column `column` (4q) of a
/// row of blocks on: those of row `row` (0 or 1) of each block.
void emitStoreRowOfBlocks(Emitter &e, mlir::Value kPacks, mlir::Value dst, mlir::ValueRange at, mlir::Value row,
                          bool isWhole = true);

/// Loads the block at `at` into each 128 bits of a register.
mlir::Value emitLoadBlock(Emitter &e, mlir::Value memref, mlir::ValueRange at);

/// What a k-pack of a block has.
enum class BlockElements { BF16, Int8 };

/// Like emitMicrokernel for blocks, with sums in f32, or for int8 the bits of i32: begin ≤ q < end, `a` returns block q
/// of rows 2i and 2i + 1, and `b` register j of the columns, of which there are two for each register of `block`.
llvm::SmallVector<mlir::Value> emitMatrixProduct(Emitter &e, RegisterBlock block, mlir::Value begin, mlir::Value end,
                                                 llvm::ArrayRef<mlir::Value> acc,
                                                 llvm::function_ref<mlir::Value(unsigned, mlir::Value)> a,
                                                 llvm::function_ref<mlir::Value(mlir::Value, unsigned)> b,
                                                 BlockElements elements = BlockElements::BF16);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_MATRIXPRODUCT_H
