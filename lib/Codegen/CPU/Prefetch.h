//===- Prefetch.h - What a task reads next ------------------------*- C++ -*-===//
//
// Tiles of keys and values come from memory once a task. Asked for while the tile before them is worked on, they
// are there when their turn comes.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_PREFETCH_H
#define SACCADE_LIB_CODEGEN_CPU_PREFETCH_H

#include "Emitter.h"
#include "mlir/IR/IRMapping.h"

namespace saccade::cpu {

/// The step of a task that comes after the one an op stands in: the next iteration of the loop around the op, or the first
/// one of the next work item.
class NextStep {
public:
  /// Emits, before `op`, what tells the next step from this one.
  NextStep(Emitter &e, mlir::Operation *op);

  /// A view that `op` reads, as it will be in the next step. Null where it stays, and where that cannot be told from the
  /// loops: views of memory that a step computes.
  mlir::Value view(mlir::Value operand);

  mlir::Value exists;    ///< i1; null where `op` is in no loop that is understood
  mlir::Value isNewItem; ///< i1

private:
  mlir::Value clone(mlir::Value value);

  Emitter &e;
  mlir::scf::ForOp items, tiles;
  mlir::IRMapping next;
};

/// Asks for the line of a 2-D memref that (row, column) lies in; there need be no such row.
void emitPrefetch(Emitter &e, mlir::Value matrix, mlir::Value row, mlir::Value column, bool isWrite = false);

/// Asks for the rows [begin, end) of a 2-D memref whose inner stride is 1, in order to write them where `isWrite`. With
/// another stride this is useless, but does no harm.
void emitPrefetchRows(Emitter &e, mlir::Value matrix, mlir::Value begin, mlir::Value end, bool isWrite = false);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_PREFETCH_H
