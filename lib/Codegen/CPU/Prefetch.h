//===- Prefetch.h - Prefetching the next tile ---------------------*- C++ -*-===//
//
// A task reads each tile of keys and values from memory once. Prefetching a tile during the previous step hides that
// latency.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_PREFETCH_H
#define SACCADE_LIB_CODEGEN_CPU_PREFETCH_H

#include "Emitter.h"
#include "mlir/IR/IRMapping.h"

namespace saccade::cpu {

/// The step of a task that follows the one of an op: the next iteration of the enclosing loop over tiles, or the first
/// one of the next work item.
class NextStep {
public:
  /// Emits the loop counters of the next step before `op`. `isNested`: after the last iteration of a loop comes the
  /// next one of the loop around it.
  NextStep(Emitter &e, mlir::Operation *op, bool isNested = false);

  /// The view `operand` of `op` in the next step, in which loops inside of it begin. Null if it does not change or if
  /// it depends on memory written in a step.
  mlir::Value view(mlir::Value operand);

  mlir::Value exists;    ///< i1; null if the loops around `op` are not supported
  mlir::Value isNewItem; ///< i1

private:
  mlir::Value clone(mlir::Value value);

  Emitter &e;
  mlir::scf::ForOp items;
  llvm::SmallVector<mlir::scf::ForOp> tiles; ///< the innermost loop first
  mlir::IRMapping next;
};

/// Bytes of a cache line.
inline constexpr int64_t cacheLine = 64;

/// Prefetches the cache line of an element, which may be out of bounds.
void emitPrefetchAt(Emitter &e, mlir::Value memref, mlir::ValueRange at, bool isWrite = false);

/// Prefetches the cache line of element (row, column) of a 2-D memref; the row may be out of bounds.
void emitPrefetch(Emitter &e, mlir::Value matrix, mlir::Value row, mlir::Value column, bool isWrite = false);

/// The matrices that elementwise ops after `op` read or write at the rows and columns of `result`, a block in scratch
/// memory that `op` computes, or of its first ones. Their views are emitted before `op`. Ops in `done` have been seen
/// before, and others are added.
llvm::SmallVector<mlir::Value> emitEpilogueMatrices(Emitter &e, mlir::Operation *op, mlir::Value result,
                                                    llvm::DenseSet<mlir::Operation *> *done = nullptr);

/// Cache lines of matrices that a task copies or multiplies in its next step, in parts of `share` lines of each.
struct NextMatrices {
  llvm::SmallVector<mlir::Value> views;
  int64_t share = 0;
  mlir::Value firstPart; ///< that the op prefetches
};

/// The matrices of the steps after `op`, whose views are emitted before it: of each loop around it inside of which it
/// is the last matmul. `multiplied`: the matrices that matmuls of the task read in place. It prefetches `parts` parts.
llvm::SmallVector<NextMatrices> emitNextMatrices(Emitter &e, mlir::Operation *op, int64_t parts,
                                                 llvm::ArrayRef<mlir::Value> multiplied);
/// Prefetches part `part`. Lines beyond the end of a matrix are harmless.
void emitPrefetchPart(Emitter &e, const NextMatrices &next, mlir::Value part);

/// Prefetches the columns [column, column + columns) of the rows [row, row + rows) of a 2-D memref.
void emitPrefetchBlock(Emitter &e, mlir::Value matrix, mlir::Value row, mlir::Value column, int64_t rows,
                       int64_t columns);

/// Prefetches `count` rows of a panel (memref of panels × k-packs × width) from `begin` on. Rows beyond the end of the
/// panel are those of the next ones.
void emitPrefetchPanel(Emitter &e, mlir::Value panels, mlir::Value panel, mlir::Value begin, int64_t count);

/// Prefetches the rows [begin, end) of a 2-D memref with inner stride 1, for writing if `isWrite`. Other strides are
/// harmless but not useful.
void emitPrefetchRows(Emitter &e, mlir::Value matrix, mlir::Value begin, mlir::Value end, bool isWrite = false);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_PREFETCH_H
