//===- WGMMA.h - Asynchronous matmuls of a warpgroup --------------*- C++ -*-===//
//
// wgmma.mma_async as inline assembly: upstream ops have no form with A in registers, and their waits carry no data.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_WGMMA_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_WGMMA_H

#include "../Emitter.h"

namespace saccade::device {

/// A descriptor (i64) of a tile in shared memory at `address` (i32), a multiple of 1024 bytes, of rows of 128 bytes
/// with 128-byte swizzle. `leadingBytes` lead to the next 64 columns if columns are the n of the product.
mlir::Value tileDescriptor(Emitter &e, mlir::Value address, int64_t leadingBytes);

/// Sets rows of a tile in shared memory to 0, except for those that `isKept` (i1). wgmma of all threads may read them
/// after `fenceAsyncProxy` and a barrier. The tile is at `tile` (i32), as for `tileDescriptor`, and has `rows` rows and
/// `bytes` bytes. This thread is number `thread` (i32) of `threads`.
void clearTileRows(Emitter &e, mlir::Value tile, int64_t rows, int64_t bytes, mlir::Value thread, int64_t threads,
                   llvm::function_ref<mlir::Value(mlir::Value row)> isKept);

/// How a product advances the descriptors of its operands. ptxas keeps the high half of a descriptor, which does not
/// change, in one register after additions of 32 bits. That saves 11 of 494 instructions of a tile of attention with
/// head size 128. Kernels of gradients have no register left for it: with additions of 64 bits they issue 366 instead
/// of 380 instructions, and a causal one spills none instead of 44 bytes.
enum class Advance { LowHalf, Whole };

/// Starts lhs · rhs, of 64 rows × n columns, f16 or bf16 (`element`) with f32 sums: one wgmma for each pair of
/// `offsets`, which are added to the descriptors, as bytes. Returns the n / 2 sums of the thread, which must not be
/// used before `waitForGroups`. Both operands are stored with k contiguous.
llvm::SmallVector<mlir::Value> startProduct(Emitter &e, mlir::Type element, int64_t n, mlir::Value lhs, mlir::Value rhs,
                                            llvm::ArrayRef<std::pair<int64_t, int64_t>> offsets,
                                            Advance how = Advance::LowHalf);

/// Starts sums + lhs · rhs with `lhs` in registers: four words of two elements for each of the `offsets`, which are
/// added to the descriptor `rhs`. RHS is stored with n contiguous. Neither the results nor the registers of `lhs` may
/// be used before `waitForGroups`.
llvm::SmallVector<mlir::Value> addProduct(Emitter &e, mlir::Type element, mlir::ValueRange sums, mlir::ValueRange lhs,
                                          mlir::Value rhs, llvm::ArrayRef<int64_t> offsets,
                                          Advance how = Advance::LowHalf);

/// A tile in shared memory as an operand of a product: LHS is m × k, RHS is n × k, stored with k contiguous or, if
/// `isTransposed`, with m or n contiguous.
struct ProductTile {
  mlir::Value descriptor; ///< see tileDescriptor
  bool isTransposed;
  /// Bytes to the next 16 elements of k.
  int64_t stepBytes() const { return isTransposed ? 16 * 128 : 16 * 2; }
};

/// Starts sums + lhs · rhs, of 64 rows and two columns for each of the `sums` (f32) of a thread: `steps` times 16
/// elements of k, one wgmma each. The results must not be used before `waitForGroups`.
llvm::SmallVector<mlir::Value> addTileProduct(Emitter &e, mlir::Type element, mlir::ValueRange sums,
                                              const ProductTile &lhs, const ProductTile &rhs, int64_t steps);

/// Waits until at most `pending` of the products that were started last are incomplete. Returns `values` (f32), which
/// depend on the wait.
llvm::SmallVector<mlir::Value> waitForGroups(Emitter &e, int64_t pending, mlir::ValueRange values);

/// An instruction that ptxas neither predicates nor moves: a branch with it ends a basic block.
void pause(Emitter &e);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_WGMMA_H
