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
  LinearForwardTasks(mlir::IRRewriter &rewriter, attn::LinearOp op, bool onDevice);
  mlir::LogicalResult rewrite();

private:
  /// Σ φ(k) ⊗ u so far, and Σ φ(k) if outputs are normalized, else null.
  struct State {
    Value products, sum;
  };

  Value loadFeatures(Value tensor, attn::DimsAttr dims, Value head, Value begin) override;

  //===--- Columns ---===//
  // A matrix whose columns are those of the values is a tensor of blocks of columns, which are contiguous, or one
  // matrix if there is one block.

  int64_t blocks() const { return valueDepth / blockColumns; }
  /// Runs `body(number, carried)` over the blocks.
  llvm::SmallVector<Value> overColumns(mlir::ValueRange inits, CarryingBody body);
  /// A temporary with `extent` rows, -1 for the positions of a chunk.
  Value columnsOf(int64_t extent, mlir::Type element);
  Value columns(Value matrix, Value number);
  Value insertColumns(Value block, Value matrix, Value number);
  /// A state as blocks, and blocks as a state in `into`.
  Value toBlocks(Value state);
  Value fromBlocks(Value blocks, Value into);

  //===--- Chunks ---===//
  /// What a chunk adds to the state with its keys, in the type of operands of matmuls: the values, or what the delta
  /// rule leaves of them.
  Value written(const Chunk &chunk, Value state);
  Value errors(const Chunk &chunk, Value erase, Value state, Value number);
  State write(const Chunk &chunk, Value values, State state);
  /// Computes the outputs of all query heads of this task for the chunk at `begin`. `chunk` holds its keys, with
  /// `values` that it writes, or is null if the state includes all keys.
  Value read(Value output, Value begin, const Chunk *chunk, Value values, const State &state);
  /// The outputs of a query head, from its queries and, with `chunk`, their scores with its keys.
  Value readHead(Value output, Value member, Value begin, Value head, const Chunk *chunk, Value values,
                 const State &state);
  /// An element of the output: what is read from the state, times a factor of its row, plus what is read from the
  /// chunk, by a divisor.
  Value outputOf(mlir::ValueRange args, bool hasFactor, double scale, bool hasWithin, bool isNormalized);
  /// The divisors of normalized outputs, else null.
  Value divisorsOf(Value entering, Value factor, double scale, Value within, const State &state);
  llvm::SmallVector<Value> emitTask(mlir::ValueRange parts);
  /// The causal recurrence from the state and the output in `carried`, by chunks or position by position.
  llvm::SmallVector<Value> visitChunksOrPositions(mlir::ValueRange carried);
  llvm::SmallVector<Value> visitChunks(mlir::ValueRange carried);
  llvm::SmallVector<Value> visitAllKeys(mlir::ValueRange carried);
  llvm::SmallVector<Value> visitPositions(mlir::ValueRange carried);
  llvm::SmallVector<Value> visitPosition(Value position, mlir::ValueRange carried);
  /// S ← decay · S + key ⊗ value and, if `query` is given, the sums of `query` times S, which is not read again.
  std::pair<Value, Value> update(const Chunk &chunk, Value key, Value value, Value state, Value query);
  State initialState(mlir::ValueRange parts);

  State asOperands(const State &state);
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
  int64_t blockColumns = 0; ///< of values, in a block
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_LINEARFORWARDTASKS_H
