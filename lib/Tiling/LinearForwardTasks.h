//===- LinearForwardTasks.h - The tasks of attn.linear ------------*- C++ -*-===//
//
// Lowers attn.linear, for TileLinear.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_LINEARFORWARDTASKS_H
#define SACCADE_LIB_TILING_LINEARFORWARDTASKS_H

#include "LinearTasks.h"

namespace saccade {

/// Lowers one attn.linear.
class LinearForwardTasks : LinearTasks {
public:
  LinearForwardTasks(mlir::IRRewriter &rewriter, attn::LinearOp op, bool onDevice)
      : LinearTasks(rewriter, op, onDevice), linear(op) {}
  mlir::LogicalResult rewrite();

private:
  /// Σ φ(k) ⊗ u so far, and Σ φ(k) if outputs are normalized, else null.
  struct State {
    Value products, sum;
  };

  Value loadFeatures(Value tensor, attn::DimsAttr dims, Value head, Value begin) override;
  State write(const Chunk &chunk, Value values, State state);
  /// Computes the outputs of all query heads of this task for the chunk at `begin`. `chunk` holds its keys, with
  /// `values` that it writes, or is null if the state includes all keys.
  Value read(Value output, Value begin, const Chunk *chunk, Value values, const State &state);
  Value storeOutput(Value output, Value member, Value begin, llvm::ArrayRef<IndexedOperand> sums);
  llvm::SmallVector<Value> emitTask(mlir::ValueRange parts);
  /// The causal recurrence from the state and the output in `carried`, by chunks or position by position.
  llvm::SmallVector<Value> visitChunksOrPositions(mlir::ValueRange carried);
  llvm::SmallVector<Value> visitChunks(mlir::ValueRange carried);
  llvm::SmallVector<Value> visitPositions(mlir::ValueRange carried);
  llvm::SmallVector<Value> visitPosition(Value position, mlir::ValueRange carried);
  /// S ← decay · S + key ⊗ value and, if `query` is given, the sums of `query` times S, which is not read again.
  std::pair<Value, Value> update(const Chunk &chunk, Value key, Value value, Value state, Value query);
  State initialState(mlir::ValueRange parts);

  State stateOf(mlir::ValueRange carried) { return {carried[0], linear.getNormalize() ? carried[1] : Value()}; }
  llvm::SmallVector<Value> valuesOf(const State &state) {
    return state.sum ? llvm::SmallVector<Value>{state.products, state.sum} : llvm::SmallVector<Value>{state.products};
  }
  /// Whether the state is computed in the memory of the final state.
  bool isInPlace() {
    return linear.getFinalState() && !linear.getNormalize() &&
           mlir::getElementTypeOrSelf(linear.getFinalState()) == type &&
           (!linear.getState() || mlir::getElementTypeOrSelf(linear.getState()) == type);
  }

  attn::LinearOp linear;
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_LINEARFORWARDTASKS_H
