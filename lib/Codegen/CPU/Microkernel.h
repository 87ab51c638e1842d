//===- Microkernel.h - Register-blocked matmul -------------------*- C++ -*-===//
//
// The innermost loops of all matmuls: scores, weighted values and linalg contractions.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_MICROKERNEL_H
#define SACCADE_LIB_CODEGEN_CPU_MICROKERNEL_H

#include "Emitter.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace saccade::cpu {

/// A block of accumulators: `rows` rows of `vectors` registers.
struct RegisterBlock {
  unsigned rows, vectors;
};

/// The largest width of a register block.
inline constexpr unsigned maxBlockVectors = 4;

/// Rows of the register blocks that are used for partial row groups.
inline constexpr int64_t rowTail = 4;

/// The register block (MR × NR) of a matmul whose RHS is packed in panels (scores, projections). A panel is two
/// registers wide, 32 f32 lanes with AVX-512. 24 accumulators of 32 registers, or 12 of 16, are the maximum without
/// spills.
RegisterBlock panelBlock(const CPUTarget &target, bool isTail);
/// The register block of a matmul whose RHS has rows of `vectors` registers (values).
RegisterBlock rowBlock(const CPUTarget &target, bool isTail, int64_t vectors);

/// Returns `index` in a form that LLVM cannot trace to its computation, by an empty inline-assembly statement. If
/// loop strength reduction sees that rows are at multiples of one stride, it recomputes their addresses in every
/// iteration of a microkernel (29 instead of 24 instructions for 6 × 2 registers; 2 to 4 % of a matmul on AVX2).
mlir::Value emitOpaqueIndex(Emitter &e, mlir::Value index);

/// The k-packs that one accumulator sums in a chain. Longer sums are sums of such parts, because the rounding error of
/// a chain grows with its length: n terms in parts of b commit an error of b + n/b roundings instead of n (Higham, "The
/// accuracy of floating point summation", 1993).
inline constexpr int64_t sumLength = 128;

/// Returns sum + x · y for a k-pack x, or a vector of it, and a vector of k-packs y.
using MultiplyAddBody = llvm::function_ref<mlir::Value(mlir::Value x, mlir::Value y, mlir::Value sum)>;

/// Emits acc[i][j] += Σ_{begin ≤ k < end} a(i, k) · b(k, j) and returns the accumulators (row-major). k counts k-packs
/// (see Pack.h); `a` returns the k-pack of row i, `b` a vector of k-packs. With constant bounds and
/// multiply-add instructions the loop is unrolled four times.
llvm::SmallVector<mlir::Value> emitMicrokernel(Emitter &e, RegisterBlock block, mlir::Value begin, mlir::Value end,
                                               llvm::ArrayRef<mlir::Value> acc,
                                               llvm::function_ref<mlir::Value(unsigned, mlir::Value)> a,
                                               llvm::function_ref<mlir::Value(mlir::Value, unsigned)> b,
                                               MultiplyAddBody multiplyAdd);

/// Loads the vector at (panel, k-pack, column) of packed panels in L2, and prefetches into L1 the vector
/// KernelShapes::prefetchedPacks k-packs later. A microkernel reads its RHS faster than hardware prefetchers fetch it
/// from L2.
mlir::Value loadAhead(Emitter &e, mlir::Value panels, mlir::Value panel, mlir::Value k, mlir::Value column);

/// Returns the block of `tile` (memref of rows x columns) that starts at (row, column) plus `acc`.
llvm::SmallVector<mlir::Value> addBlock(Emitter &e, RegisterBlock block, llvm::ArrayRef<mlir::Value> acc,
                                        mlir::Value tile, mlir::Value row, mlir::Value column);
void storeBlock(Emitter &e, RegisterBlock block, llvm::ArrayRef<mlir::Value> acc, mlir::Value tile, mlir::Value row,
                mlir::Value column);

/// Returns the sums of a block over `length` k-packs, or other units along K, from `begin` on.
using SumPart = llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value begin, mlir::Value length)>;

/// Calls `addPart` for the parts of [first, depth), which have a length of `partLength`, except the last. If not
/// `hasConstantParts`, whole parts have no constant length, and are not unrolled.
using PartBody = llvm::function_ref<void(mlir::Value begin, mlir::Value length)>;
void emitParts(Emitter &e, mlir::Value first, mlir::Value depth, int64_t partLength, bool hasConstantParts,
               PartBody addPart);

/// Adds the sums over [0, depth) to the block of `tile` (memref of rows x columns) that starts at (row, column), in
/// parts (`emitParts`). If `isFromZero`, the block is not read before.
void emitSumInParts(Emitter &e, RegisterBlock block, mlir::Value depth, int64_t partLength, mlir::Value tile,
                    mlir::Value row, mlir::Value column, SumPart sum, bool isFromZero, bool hasConstantParts);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_MICROKERNEL_H
