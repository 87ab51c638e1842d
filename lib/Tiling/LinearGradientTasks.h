//===- LinearGradientTasks.h - The gradients of linear attention --*- C++ -*-===//
//
// Lowers attn.linear_gradient, for TileLinear.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_LINEARGRADIENTTASKS_H
#define SACCADE_LIB_TILING_LINEARGRADIENTTASKS_H

#include "LinearTasks.h"

namespace saccade {

/// Lowers one op to two parallel loops. The first visits the chunks forwards and stores the state before each of them
/// and, with the delta rule, the remainders of its values. The second visits them backwards with the gradient of the
/// state. Without `causal` one loop is enough. On a GPU the second loop has blocks of columns of that gradient, which
/// it stores for each chunk, and a third one computes the other gradients of all chunks in parallel.
class LinearGradientTasks : LinearTasks {
public:
  LinearGradientTasks(mlir::IRRewriter &rewriter, attn::LinearGradientOp op, bool onDevice)
      : LinearTasks(rewriter, op, onDevice), gradient(op) {
    arePadded = onDevice;
    if (onDevice)
      rows = rowsOnDevice();
  }
  mlir::LogicalResult rewrite();

private:
  /// The gradients of the operands; null for those that the op does not have.
  struct Results {
    Value query, key, value, decay, beta, erase, state;
    llvm::SmallVector<Value> getValues() const;
    /// The same members with other values.
    Results with(mlir::ValueRange values) const;
  };
  /// The gradients of a chunk as they are added up. Without `keys`, only those of values and of the state are; without
  /// `state`, only the others.
  struct Sums {
    Value keys, values; ///< `values`: of those that are written
    Value decay;        ///< of the sums of logarithms up to each position, like the decay; null without
    Value state;        ///< of the state before the chunk
    Value query;        ///< the result
    llvm::SmallVector<Value> getValues() const;
    Sums with(mlir::ValueRange values) const;
  };
  /// What the second loop reads of a chunk.
  struct Saved {
    Value state, remainders; ///< before the chunk
    Value written;           ///< the values that it writes
  };

  /// Positions of a chunk whose gradients fit in shared memory.
  int64_t rowsOnDevice();

  //===--- Columns ---===//
  /// Columns of the state in a task of a GPU, and the tasks of a head; all and none on a CPU.
  int64_t columnsOfPart();
  mlir::OpFoldResult parts();
  /// Makes the columns of the task those of its part.
  void takeColumns();

  //===--- What loops store for each other ---===//
  /// Memory for the states at all chunks, [heads, chunks, depth, columns], and for numbers of all values, [heads,
  /// positions, columns].
  Value emptyStates();
  Value emptyRemainders();
  /// `to` with the elements of `from`.
  Value copied(Value from, Value to);
  /// Stores a state, or numbers of the values of a chunk, in the slice of the task.
  Value storeOfChunk(Value state, Value into, Value begin);
  Value storeOfPositions(Value values, Value into, Value begin);
  /// Those of the columns of the task.
  Value loadOfChunk(Value states, Value begin);
  Value loadOfPositions(Value values, Value begin);

  /// The first loop; returns the states and the remainders, null without the delta rule.
  std::pair<Value, Value> emitStates();
  /// The task of the second loop.
  Results visitChunks(Value states, Value remainders, Results results);
  /// What the first loop saved of a chunk.
  Saved savedOf(const Chunk &chunk, Value states, Value remainders);
  /// The second and third loop of a GPU.
  Results emitParts(Value states, Value remainders, Results results);
  std::pair<Value, Value> emitColumns(Results &results);
  /// Where the task of a chunk begins to store rows of the chunk at `begin`.
  Value beginOfStores(Value begin) { return isOneChunk ? index(0) : begin; }
  /// `after`: the gradient of the state after the chunk. Returns that of the state before it and the results.
  std::pair<Value, Results> visit(const Chunk &chunk, const Saved &saved, Value after, Results results);
  Sums addQueries(const Chunk &chunk, const Saved &saved, Sums sums);
  Sums addQueryHead(const Chunk &chunk, const Saved &saved, Value head, Value member, Sums sums);
  /// The gradient of the remainders, given that of what is written.
  Value solvedGradient(const Chunk &chunk, Value ofValues);
  /// Replaces `sums.values` by the gradients of the values, and adds those of erase keys.
  Sums addDeltaRule(const Chunk &chunk, const Saved &saved, Value ofRemainders, Sums sums, Results &results);
  /// The sums before queries and delta rule, without those of values and of the state.
  Sums beginSums(const Chunk &chunk, const Saved &saved, Value after, const Results &results, Value &ofState);
  Results storeChunk(const Chunk &chunk, const Sums &sums, Value ofState, Results results);
  /// Adds ± x · y of each position, or their sum over the rows unless the decay is of rows.
  Value addToDecay(Value sums, Value x, Value y, bool isNegative);
  /// Adds the gradients of x and the keys in the scores of x, given those of the scores.
  std::pair<Value, Value> pullScores(const Chunk &chunk, Value weights, Value x, Value ofX, Value ofKeys);
  /// The part of the decay of the whole chunk in the gradient of decay, [depth] or a number.
  Value decayOfState(const Chunk &chunk, Value state, Value after, Value ofKeys);
  Value storeDecay(const Chunk &chunk, Value sums, Value ofState, Value into);
  llvm::SmallVector<Value> emitNonCausal(Results results);

  /// Where a task stores the results that are not null: all rows of its sequence, or `count` rows from `first` on.
  llvm::SmallVector<Place> places(const Results &results, Value first = {}, Value count = {});
  Place placeOfChunks();
  Place placeOfRemainders();
  Value outputGradient(Value head, Value begin);
  Value timesFactor(Value x, const Chunk &chunk, Value factor);

  attn::LinearGradientOp gradient;
  bool isOneChunk = false; ///< whether a task stores the rows of one chunk
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_LINEARGRADIENTTASKS_H
