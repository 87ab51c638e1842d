//===- AttentionState.h - The states of a kernel's attention ------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_ATTENTIONSTATE_H
#define SACCADE_LIB_CODEGEN_GPU_ATTENTIONSTATE_H

#include "FragmentSoftmax.h"

namespace saccade::device {

/// Which rows of a state a thread has.
struct ThreadRows {
  int64_t count;                                             ///< of those it has a part of
  llvm::function_ref<mlir::Value(Emitter &, int64_t)> rowAt; ///< the number of each, index
  /// Whether the thread's part of a sum is the one that begins with what the row begins with, i1. Null where no other
  /// thread has a part.
  llvm::function_ref<mlir::Value(Emitter &)> isFirst = nullptr;
};

/// The buffers of one attention of a kernel and everything that works on them. One thread is to work on a part of them
/// that it holds itself.
struct AttentionState {
  mlir::memref::AllocOp acc, max, sum;
  /// Every buffer of a row's values: those of the state, and those that only hold what others begin with.
  llvm::SmallVector<mlir::memref::AllocOp> buffers;
  llvm::SmallVector<mlir::linalg::LinalgOp> inits; ///< fills and copies
  llvm::SmallVector<attn::AccumulateOp> steps;     ///< in the order of the code; none where there is no key
  attn::FinalizeOp finalize;

  mlir::Type element() const; ///< of the operands; null without steps
  mlir::FloatType number() const;
  int64_t depth() const; ///< needs a step
  int64_t valueDepth() const;
  int64_t rows() const;

  /// Makes the memory of one thread for the state, `accElements` numbers of the accumulator, and initialises it where
  /// `inits` did. The kernel is marked as one of `family`.
  PrivateState privatize(llvm::StringRef family, int64_t accElements, const ThreadRows &rows);
  /// Erases the ops, once their work is done otherwise.
  void erase();
};

/// The attentions of a kernel that `fits` takes. A diagnostic and failure where one uses what kernels do not support.
mlir::FailureOr<llvm::SmallVector<AttentionState>>
findStates(mlir::func::FuncOp kernel, llvm::function_ref<bool(const AttentionState &)> fits);

/// Whether a kernel's states are memory that tasks hand on: parts of the keys of few queries.
bool hasStateInMemory(mlir::func::FuncOp kernel);

/// A thread's memory for a part of a state that no key has been folded into.
PrivateState emptyPrivateState(Emitter &e, mlir::func::FuncOp kernel, int64_t accElements, int64_t rows);

/// The state (max, sum) of a row in memory joined with another one over other keys.
struct MergedRow {
  mlir::Value max, sum;
  mlir::Value stateFactor, otherFactor; ///< of the accumulators
};
/// Both are numbers; `max` may be −∞.
MergedRow mergeRow(Emitter &e, mlir::Value max, mlir::Value sum, mlir::Value otherMax, mlir::Value otherSum);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_ATTENTIONSTATE_H
