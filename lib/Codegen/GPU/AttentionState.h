//===- AttentionState.h - The softmax states of a kernel ----------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_ATTENTIONSTATE_H
#define SACCADE_LIB_CODEGEN_GPU_ATTENTIONSTATE_H

#include "FragmentSoftmax.h"
#include "GlobalMatrix.h"
#include "saccade/Support/Kernels.h"

namespace saccade::device {

inline constexpr int64_t warps = threadsPerCTA / 32;

/// The rows of a state that a thread holds.
struct ThreadRows {
  int64_t count;
  llvm::function_ref<mlir::Value(Emitter &, int64_t)> rowAt; ///< row index of the i-th row, index
  /// Whether this thread's partial sum includes the initial sum of the row, i1. Null if rows are not shared by threads.
  llvm::function_ref<mlir::Value(Emitter &)> isFirst = nullptr;
};

/// The state buffers of one attention in a kernel and all ops that use them. `privatize` gives each thread private
/// memory for its part, which replaces the buffers.
struct AttentionState {
  mlir::memref::AllocOp acc, max, sum;
  /// All per-row buffers: those of the state, and those that only hold initial values.
  llvm::SmallVector<mlir::memref::AllocOp> buffers;
  llvm::SmallVector<mlir::linalg::LinalgOp> inits; ///< fills and copies
  llvm::SmallVector<attn::AccumulateOp> steps;     ///< in program order; empty if there are no keys
  attn::FinalizeOp finalize;

  mlir::Type element() const; ///< of the operands; null without steps
  mlir::FloatType accumulatorType() const;
  int64_t depth() const; ///< requires a step
  int64_t valueDepth() const;
  int64_t rows() const;

  /// Allocates the private state of one thread, with `accElements` elements of the accumulator, initializes it at each
  /// op of `inits`, and sets the kernel family to `family`.
  PrivateState privatize(llvm::StringRef family, int64_t accElements, const ThreadRows &rows);
  /// Erases all ops of the state, after they have been lowered.
  void erase();
};

/// The name of a kernel family for `step`, which says whether it reads pages.
std::string nameFamily(llvm::StringRef family, attn::AccumulateOp step);

/// Replaces a loop over sections of keys that contains the step by one section with all keys, if there are any: the
/// keys of an iteration end at the sum of its induction variable and the step of the loop, or at the end of the loop.
/// Positions of keys must have 32 bits, which shape functions check (`max-keys`).
void mergeSections(attn::AccumulateOp step);

/// Erases a lowered step, with the loads of pages for it.
void eraseStep(attn::AccumulateOp op);

/// Returns the attention states of a kernel that satisfy `fits`. Emits an error if one is used in an unsupported way.
mlir::FailureOr<llvm::SmallVector<AttentionState>> findStates(mlir::func::FuncOp kernel,
                                                              llvm::function_ref<bool(const AttentionState &)> fits);

/// Returns whether the states of a kernel are stored in global memory, as partial states of split-KV are.
bool hasStateInMemory(mlir::func::FuncOp kernel);

/// Allocates the private memory of a thread for the state of `op` without keys: acc, sum and tallies 0, maxima −∞,
/// argmax −1.
PrivateState emptyPrivateState(Emitter &e, mlir::func::FuncOp kernel, attn::AccumulateOp op, int64_t accElements,
                               int64_t rows);

/// The maximum over `threads` consecutive lanes, and its position (null if `position` is). Of equal maxima the one with
/// the smallest position is taken.
std::pair<mlir::Value, mlir::Value> reduceMax(Emitter &e, mlir::Value max, mlir::Value position, int64_t threads);

/// The row maximum of row `row` over `threads` consecutive lanes that share it, and the first key that attains it (null
/// if not requested).
std::pair<mlir::Value, mlir::Value> reduceRowMax(Emitter &e, const PrivateState &state, int64_t row, int64_t threads);

/// A number relative to the natural maximum `max`, of one relative to its rounded exponent (`emitRoundedNaturalMax`),
/// as the threads of a kernel have it; `isInverse`: the other way. Exponents as maxima leave it as it is.
mlir::Value fromRounded(Emitter &e, bool isNatural, mlir::Value max, mlir::Value x, bool isInverse = false);

/// The places of the log-sum-exp and its low part, if `op` has them.
class LseResults {
public:
  LseResults(Emitter &e, attn::FinalizeOp op);
  /// Stores those of a row. `isRounded`: a natural sum is relative to the rounded exponent of the maximum.
  void store(Emitter &e, mlir::Value row, mlir::Value max, mlir::Value sum, bool isRounded);

private:
  attn::FinalizeOp op;
  std::optional<GlobalMatrix> lse, low;
};

/// Merges a row maximum and its position (null if not requested) into a row of the state in memory. The larger one is
/// kept; of equal ones that in memory, which is of earlier keys.
void mergeRowMax(Emitter &e, const attn::State &state, mlir::Value row, mlir::Value rowMax, mlir::Value argmax);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_ATTENTIONSTATE_H
