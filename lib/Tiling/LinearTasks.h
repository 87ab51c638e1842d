//===- LinearTasks.h - The tasks of linear attention --------------*- C++ -*-===//
//
// Lowers attn.linear to a parallel loop over tasks, for TileLinear.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_LINEARTASKS_H
#define SACCADE_LIB_TILING_LINEARTASKS_H

#include "LinearChunk.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/PatternMatch.h"

namespace saccade {

/// Lowers one op. A task has one head of the operand with the state (the key or, if transposed, the query), and a group
/// of heads of the other one.
class LinearTasks : ChunkEmitter {
public:
  LinearTasks(mlir::IRRewriter &rewriter, attn::LinearOp op)
      : ChunkEmitter(rewriter, op.getLoc(), op.getStateType(), 0), rewriter(rewriter), op(op),
        isTransposed(op.getTransposed()) {}
  mlir::LogicalResult rewrite();

private:
  /// Σ φ(k) ⊗ v so far, and Σ φ(k) if outputs are normalized, else null.
  struct State {
    Value products, sum;
  };
  /// The cumulative decays of a chunk, and the operands of one head of keys.
  struct Chunk {
    Value keys, values, beta;
    Value decay;    ///< of each position, [positions] or, if it differs by row or column, [positions, `factors`]; null
                    ///< without
    Value between;  ///< from each position to each later one, [positions, positions]; null if decay differs by row
    Value entering; ///< decay of the state before the chunk up to the read at each position, [positions, `factors`]
    Value leaving;  ///< from the write at each position to the state after the chunk
    Value whole;    ///< of the whole chunk, [`factors`]
  };

  void emitTask(mlir::scf::ForallOp loop);
  Chunk loadDecay(Value begin);
  void loadKeys(Chunk &chunk, Value head, Value begin);
  /// The decayed products of `later` and `earlier` positions: queries and keys or, if transposed, keys and queries.
  /// [positions, positions], 0 above the diagonal.
  Value scores(Value later, Value earlier, const Chunk &chunk);
  /// x · decay, [positions, `factors`]; x without decay.
  Value decayed(Value x, Value decay);
  Value decayedRows(Value x, Value decay) { return op.getDecaysColumns() ? x : decayed(x, decay); }
  Value decayedColumns(Value x, Value decay) { return op.getDecaysColumns() ? decayed(x, decay) : x; }
  void applyDeltaRule(Chunk &chunk, const State &state);
  /// The state decayed by the whole chunk.
  State decayState(const Chunk &chunk, State state);
  State write(const Chunk &chunk, State state);
  /// What `queries` read from the keys of the chunk, added to `sums`.
  Value readChunk(Value within, const Chunk &chunk, Value sums);
  /// Computes the outputs of all query heads of this task for the chunk at `begin`. `chunk` holds its keys, or null
  /// if the state includes all keys.
  Value read(Value output, Value begin, const Chunk *chunk, const State &state);
  Value storeOutput(Value output, Value member, Value begin, llvm::ArrayRef<IndexedOperand> sums);
  /// The results of a chunk: the next state and the output.
  llvm::SmallVector<Value> visit(Value begin, const State &state, Value output);
  llvm::SmallVector<Value> visitTransposed(Value begin, const State &state, Value output);

  State initialState();
  Value storeState(const State &state, Value into);

  /// The rank-reducing slice of a chunk in a tensor, and the loops that index its kept dimensions.
  struct Rows {
    llvm::SmallVector<mlir::OpFoldResult> offsets, sizes;
    llvm::SmallVector<bool> isKept;
    llvm::SmallVector<unsigned> loops;
  };
  Rows rowsAt(llvm::ArrayRef<attn::Dim> dims, mlir::OpFoldResult inBatch, Value head, Value begin, int64_t columns);
  Value loadRows(Value tensor, attn::DimsAttr dims, Value head, Value begin, bool isFeature);
  Value loadFactor(Value tensor, attn::AxesAttr axes, Value begin, bool isDecay);
  /// Runs `body` over chunks of [0, positions) with `size` set; from the last to the first if transposed.
  llvm::SmallVector<Value> overChunks(mlir::OpFoldResult positions, mlir::ValueRange inits, CarryingBody body);
  /// Runs `body(head, member, carried)` for the heads of queries or keys of this task; `member`: the number in the
  /// group.
  llvm::SmallVector<Value> overHeads(bool isQuery, mlir::ValueRange inits,
                                     llvm::function_ref<llvm::SmallVector<Value>(Value, Value, mlir::ValueRange)> body);
  mlir::OpFoldResult sizeOf(const attn::NamedOperand &operand, attn::Dim dim) {
    return sizeOf(operand.value, operand.dims, dim);
  }
  mlir::OpFoldResult sizeOf(Value value, attn::DimsAttr dims, attn::Dim dim) {
    return attn::getDimSize(b, loc, value, dims, dim);
  }
  State stateOf(mlir::ValueRange carried) { return {carried[0], op.getNormalize() ? carried[1] : Value()}; }
  llvm::SmallVector<Value> valuesOf(const State &state) {
    return state.sum ? llvm::SmallVector<Value>{state.products, state.sum} : llvm::SmallVector<Value>{state.products};
  }
  bool hasMatrixDecay() { return op.getDecay() && op.getDecayAxesAttr().position(attn::Dim::Depth); }

  mlir::IRRewriter &rewriter;
  attn::LinearOp op;
  bool isTransposed;
  int64_t depth = 0, valueDepth = 0, factors = 0; ///< factors: the decay factors of a position
  Value batch, taskHead, group;                   ///< indices of the task; heads of the group
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_LINEARTASKS_H
