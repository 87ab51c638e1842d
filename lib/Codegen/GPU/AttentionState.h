//===- AttentionState.h - The states of a kernel's attention ------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_ATTENTIONSTATE_H
#define SACCADE_LIB_CODEGEN_GPU_ATTENTIONSTATE_H

#include "FragmentSoftmax.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace saccade::device {

/// The buffers of one state of the online softmax, and all that works on them.
struct AttentionState {
  mlir::memref::AllocOp acc, max, sum;
  llvm::SmallVector<mlir::linalg::FillOp> fills;
  llvm::SmallVector<attn::AccumulateOp> steps;
  attn::FinalizeOp finalize;

  /// The shape that a kernel family decides by.
  mlir::Type element() const;     ///< of queries, keys and values
  mlir::FloatType number() const; ///< of scores and sums
  int64_t depth() const, valueDepth() const, rows() const; ///< static

  /// Puts memory of a thread's own in the place of the buffers: `accElements` numbers of the accumulator, and maximum and
  /// sum of `rows` rows; names the kernel's `family`. The fills are done; the steps and `finalize` are left to the caller,
  /// who ends with `erase`.
  PrivateState privatize(llvm::StringRef family, int64_t accElements, int64_t rows);
  void erase();
};

/// The states of `kernel` that `fits` wants; an op that belongs to none is an error.
mlir::FailureOr<llvm::SmallVector<AttentionState>>
findStates(mlir::func::FuncOp kernel, llvm::function_ref<bool(const AttentionState &)> fits);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_ATTENTIONSTATE_H
