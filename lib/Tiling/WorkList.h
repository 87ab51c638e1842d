//===- WorkList.h - The work items of ragged attention ------------*- C++ -*-===//
//
// The lengths of ragged sequences are known at run time only. Code before the parallel loop lists the work items, so
// that no task computes padding and the longest items are scheduled first.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_WORKLIST_H
#define SACCADE_LIB_TILING_WORKLIST_H

#include "saccade/Dialect/Attn/IR/Attn.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace saccade {

/// The sequences of a ragged attention op.
struct Sequences {
  /// Emits the start offsets of the sequences of `op`. Offsets are clamped to be ascending and within the operands, so
  /// that invalid ones cause no out-of-bounds access.
  Sequences(mlir::OpBuilder &b, attn::AttentionOp op);

  /// The number of sequences, index. If queries are ragged, the last sequence consists of the padding rows that belong
  /// to none.
  mlir::Value count;
  /// The start of each sequence and, last, the end of the last one; null if the queries or keys are not ragged.
  mlir::Value queryStarts, keyStarts;

  /// Emits the number of queries or keys of sequence `number`.
  mlir::Value length(mlir::OpBuilder &b, attn::Role role, mlir::Value number);
  /// Emits the start offset of sequence `number` in the tensor.
  mlir::Value start(mlir::OpBuilder &b, attn::Role role, mlir::Value number);
  /// Emits `op` on sequence `number` alone, as an op that is not ragged.
  attn::AttentionOp extract(mlir::OpBuilder &b, mlir::Value number);

private:
  mlir::Value normalize(mlir::OpBuilder &b, attn::Role role, mlir::Value total, bool hasPaddingRows);
  mlir::Value lengthOperand(mlir::OpBuilder &b, mlir::Value length, mlir::Value number, mlir::Value rest);

  attn::AttentionOp op;
  mlir::Value sequenceCount; ///< number of sequences without the padding rows
};

/// The work items of several sequences. The items of one sequence are consecutive.
struct WorkList {
  mlir::Value sequences;   ///< tensor<?xindex>: the sequence of each item
  mlir::Value itemOffsets; ///< tensor<?xindex>: the first item of each sequence
  mlir::Value count;       ///< number of items, index
};

/// Emits a list with `partsOf(i)` items for each sequence i < `count`. `costOf(i)`, at least 0, is the cost of one
/// item; the list is sorted by the bit width of the cost, descending.
WorkList listItems(mlir::OpBuilder &b, mlir::Location loc, mlir::Value count,
                   llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Value)> partsOf,
                   llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Value)> costOf);

} // namespace saccade

#endif // SACCADE_LIB_TILING_WORKLIST_H
