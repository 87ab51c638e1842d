//===- WorkList.h - The work items of packed attention -----------*- C++ -*-===//
//
// Sequences of one packed tensor have lengths that only the run time knows. Code in front of the tasks writes down which
// items there are, so that no task is there for padding and the longest come first.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_WORKLIST_H
#define SACCADE_LIB_TILING_WORKLIST_H

#include "saccade/Dialect/Attn/IR/Attn.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace saccade {

/// The sequences of a packed attention.
struct Sequences {
  /// Emits where the sequences of `op` begin. Whatever the offsets are, they are made ascending and kept within the
  /// operands, so that no task leaves memory.
  Sequences(mlir::OpBuilder &b, attn::AttentionOp op);

  /// How many there are, an index. Where queries are packed the last one is made of the rows that belong to none.
  mlir::Value count;
  /// Of each sequence the first position and, last, where the last one ends; null where that side is not packed.
  mlir::Value queryStarts, keyStarts;

  /// Emits the number of queries or keys of sequence `number`.
  mlir::Value length(mlir::OpBuilder &b, attn::Role role, mlir::Value number);
  /// Emits where sequence `number` begins in the tensor.
  mlir::Value start(mlir::OpBuilder &b, attn::Role role, mlir::Value number);
  /// Emits `op` over nothing but sequence `number`, as attention that is not packed.
  attn::AttentionOp extract(mlir::OpBuilder &b, mlir::Value number);

private:
  mlir::Value normalize(mlir::OpBuilder &b, attn::Role role, mlir::Value total, bool hasPaddingRows);
  mlir::Value lengthOperand(mlir::OpBuilder &b, mlir::Value length, mlir::Value number, mlir::Value rest);

  attn::AttentionOp op;
  mlir::Value sequenceCount; ///< as many as there are offsets for, or batches
};

/// Items that several sequences are cut into, those of one sequence behind each other.
struct WorkList {
  mlir::Value sequences; ///< tensor<?xindex>: the sequence of each item
  mlir::Value itemOffsets;    ///< tensor<?xindex>: the first item of each sequence
  mlir::Value count;     ///< of items, an index
};

/// Emits the list of `partsOf(i)` items for each sequence i < `count`. `costOf(i)`, at least 0, is the work of one of them:
/// the list descends in its number of binary digits.
WorkList listItems(mlir::OpBuilder &b, mlir::Location loc, mlir::Value count,
                   llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Value)> partsOf,
                   llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Value)> costOf);

} // namespace saccade

#endif // SACCADE_LIB_TILING_WORKLIST_H
