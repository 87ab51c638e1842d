//===- Microkernel.h - Register-blocked matrix products ----------*- C++ -*-===//
//
// The innermost loops of everything that multiplies matrices: scores, values, projections.
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

/// The row count of the blocks that serve a group which is not full.
inline constexpr int64_t rowTail = 4;

/// The block for a product whose right side is packed in panels (scores, projections): two registers wide, so that a
/// panel is 32 f32 lanes on AVX-512. 24 accumulators of 32 registers, or 12 of 16: as many as fit without a spill.
RegisterBlock panelBlock(const CPUTarget &target, bool isTail);
/// The block for a product with a right side in rows of `vectors` registers (values).
RegisterBlock rowBlock(const CPUTarget &target, bool isTail, int64_t vectors);

/// sum + x · y of vectors of words of `step` elements (see Pack.h).
mlir::Value multiplyAdd(Emitter &e, unsigned step, mlir::Value x, mlir::Value y, mlir::Value sum);

/// Notes at the task around `op` which family its kernel belongs to: `form`, and what its products are made of (`step`: the
/// elements of a word).
void setKernelFamily(Emitter &e, mlir::Operation *op, unsigned step, llvm::StringRef form);

/// Emits acc[i][j] += Σ_{begin ≤ k < end} a(i, k) · b(k, j) and returns the accumulators (row-major). k counts words (see
/// Pack.h) of `step` elements; `a` gives one, `b` a vector of them. Where both bounds are constants the loop is unrolled
/// four times.
llvm::SmallVector<mlir::Value> emitMicrokernel(Emitter &e, RegisterBlock block, unsigned step, mlir::Value begin,
                                               mlir::Value end, llvm::ArrayRef<mlir::Value> acc,
                                               llvm::function_ref<mlir::Value(unsigned, mlir::Value)> a,
                                               llvm::function_ref<mlir::Value(mlir::Value, unsigned)> b);

/// The same for words [0, words), where the accumulators are the block of `tile` (memref of rows x columns) whose first row
/// and column are these.
void emitMicrokernelInto(Emitter &e, RegisterBlock block, unsigned step, mlir::Value words, mlir::Value tile,
                         mlir::Value row, mlir::Value column, llvm::function_ref<mlir::Value(unsigned, mlir::Value)> a,
                         llvm::function_ref<mlir::Value(mlir::Value, unsigned)> b);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_MICROKERNEL_H
