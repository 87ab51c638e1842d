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
/// state. Without `causal` one loop is enough.
class LinearGradientTasks : LinearTasks {
public:
  LinearGradientTasks(mlir::IRRewriter &rewriter, attn::LinearGradientOp op, bool onDevice)
      : LinearTasks(rewriter, op, onDevice), gradient(op) {
    arePadded = onDevice;
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
  /// The gradients of a chunk as they are added up.
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

  /// The first loop; returns the states, [heads, chunks, depth, columns], and the remainders, [heads, positions,
  /// columns] or null.
  std::pair<Value, Value> emitStates();
  /// The task of the second loop.
  Results visitChunks(Value states, Value remainders, Results results);
  /// `after`: the gradient of the state after the chunk. Returns that of the state before it and the results.
  std::pair<Value, Results> visit(const Chunk &chunk, const Saved &saved, Value after, Results results);
  Sums addQueries(const Chunk &chunk, const Saved &saved, Sums sums);
  Sums addQueryHead(const Chunk &chunk, const Saved &saved, Value head, Value member, Sums sums);
  /// Replaces `sums.values` by the gradients of the values, and adds those of erase keys.
  Sums addDeltaRule(const Chunk &chunk, const Saved &saved, Sums sums, Results &results);
  /// Adds ± x · y of each position, or their sum over the rows unless the decay is of rows.
  Value addToDecay(Value sums, Value x, Value y, bool isNegative);
  /// Adds the gradients of x and the keys in the scores of x, given those of the scores.
  std::pair<Value, Value> pullScores(const Chunk &chunk, Value weights, Value x, Value ofX, Value ofKeys);
  /// The part of the decay of the whole chunk in the gradient of decay, [depth] or a number.
  Value decayOfState(const Chunk &chunk, Value state, Value after, Value ofKeys);
  Value storeDecay(const Chunk &chunk, Value sums, Value ofState, Value into);
  llvm::SmallVector<Value> emitNonCausal(Results results);

  llvm::SmallVector<Place> places();
  Place placeOfChunks();
  Place placeOfRemainders();
  Value outputGradient(Value head, Value begin);
  Value timesFactor(Value x, const Chunk &chunk, Value factor);
  Value asType(Value x);

  attn::LinearGradientOp gradient;
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_LINEARGRADIENTTASKS_H
