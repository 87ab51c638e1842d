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

  /// The longest sequence that is computed position by position.
  static constexpr int64_t stepPositions = 8;
  /// Columns of a block of values: those of a panel of a matmul with AVX-512, of two with AVX2.
  static constexpr int64_t columnsInVectors = 32;
  /// Columns of a task: with few, each of many tasks reads all queries and keys.
  static constexpr int64_t columnsOfTask = 64;

  //===--- Columns ---===//
  // A matrix whose columns are those of the values is a tensor of blocks of columns, which are contiguous, or one
  // matrix if there is one block.

  int64_t blocks() const { return taskColumns / blockColumns; }
  /// Runs `body(number, carried)` over the blocks.
  llvm::SmallVector<Value> overColumns(mlir::ValueRange inits, CarryingBody body);
  /// A temporary with `extent` rows, -1 for the positions of a chunk.
  Value columnsOf(int64_t extent, mlir::Type element);
  Value columns(Value matrix, Value number);
  Value insertColumns(Value block, Value matrix, Value number);
  /// States as blocks, and blocks as states in `into`.
  Value toBlocks(Value states);
  Value fromBlocks(Value blocks, Value into);
  Value blocksOf(Value state, Value into);
  Value stateFrom(Value blocks, Value into);

  //===--- Heads ---===//
  // Heads of values that share queries and keys may be one task, which loads those once for a chunk and multiplies them
  // once. The first of the carried values are then the states of all heads.

  static int64_t headsOfTask(attn::LinearOp op);
  /// Runs `body` for the heads of the task, with the state of the head in place of those of all.
  llvm::SmallVector<Value> overHeads(mlir::ValueRange carried,
                                     llvm::function_ref<llvm::SmallVector<Value>(mlir::ValueRange)> body);
  /// The operands of a chunk that the heads share, and their products.
  Chunk loadShared(Value begin);
  /// The loop over tasks that compute all of a head, or of several ones.
  llvm::SmallVector<Value> emitHeads(mlir::ValueRange inits);

  //===--- Fewer tasks than threads ---===//

  /// What the columns of a chunk need, for all chunks of a segment, or slices of it for one chunk: [batch, heads,
  /// chunks] of matrices. Null what the op does not have.
  struct Prepared {
    Value keys, erase, queries; ///< as they are multiplied, if the decay is of rows; else they are loaded again
    Value solved, within;
    Value entering, leaving, whole; ///< of the decay, the first two if it is not of rows
    /// The members, and whether they have heads of queries.
    struct Part {
      Value *value;
      bool ofQueries;
    };
    llvm::SmallVector<Part> parts();
    /// The members that are not null, and the same members with other values.
    llvm::SmallVector<Value> getValues();
    Prepared with(mlir::ValueRange values) const;
  };
  /// Whether another form is compiled for calls with fewer tasks than threads, the condition, and both forms. The loops
  /// of the one that is not selected have no tasks.
  bool hasSplitForm();
  Value isSplit();
  llvm::SmallVector<Value> emitForms(mlir::ValueRange inits);
  /// The states of all blocks of columns before the first position.
  Value initialColumns();
  llvm::SmallVector<Value> emitColumns(mlir::ValueRange inits, Value states);
  /// Columns of the state that a task of that form has.
  int64_t splitColumns() const;
  /// Chunks that one task prepares. On a CPU the next one is prefetched.
  int64_t chunksOfTask() const { return onDevice ? 1 : 4; }
  int64_t preparedRows();
  Prepared emptyPrepared(Value chunks);
  Place placeOfPrepared(Value all, bool ofQueries, Value chunk, Value count);
  Value storePrepared(Value x, Value part, Value member, Value chunk);
  Value loadPrepared(Value all, Value head, Value chunk);
  Prepared prepareChunk(Value begin, Value number, Prepared parts);
  /// The loop that prepares `chunks` chunks from position `first` on in the memory of `all`.
  Prepared prepareSegment(Value first, Value chunks, Prepared all);
  /// `count` blocks of columns from block `number` on in the states between segments, [batch, heads, blocks, d,
  /// columns].
  Place placeOfBlocks(Value number, int64_t count);
  /// Block `partOfTask` in the state of the op.
  Place placeInStates();
  Value copyColumns(Value from, const Place &source, Value into, const Place &target);
  /// The new output and state in `parts` after the positions [first, end).
  llvm::SmallVector<Value> visitSegment(const Prepared &all, Value first, Value end, mlir::ValueRange parts);
  llvm::SmallVector<Value> visitPrepared(const Prepared &all, Value begin, Value number, mlir::ValueRange carried);
  llvm::SmallVector<Value> visitShort(mlir::ValueRange carried);

  /// Element `number` of the first dimension of `tensor`.
  Value part(Value tensor, Value number);
  Value insertPart(Value part, Value tensor, Value number);
  /// The states of all heads, in the final states of the task.
  Place placeOfAll();

  //===--- Chunks ---===//
  /// What a chunk writes with the delta rule: β·(I + L·β)⁻¹ and the erase keys, null without.
  struct Writing {
    Value solved, erase;
  };
  /// What a head of queries reads from a chunk and the state before it.
  struct Reading {
    Value entering; ///< the queries, decayed if the decay is of rows
    Value factor;   ///< of the rows of their products with the state, or null
    Value within;   ///< their scores with the keys of the chunk, or null
    Value divisors; ///< of normalized outputs, else null
  };

  /// Multiplies queries and erase keys with the keys of `chunk` in one pass, if a decay of rows makes this cheaper.
  void multiplyTogether(Chunk &chunk);
  Writing writingOf(const Chunk &chunk);
  Value errors(const Chunk &chunk, Value erase, Value state, Value number);
  /// Block `number` of what a chunk adds to the state with its keys: the values, or what the delta rule leaves of them,
  /// as a matrix or, with the delta rule, in `into`.
  Value writtenColumns(const Chunk &chunk, const Writing &writing, Value state, Value number, Value into);
  /// All of its blocks, in the type of operands of matmuls.
  Value written(const Chunk &chunk, const Writing &writing, Value state);
  /// The keys with which a chunk writes, and a block of the state after it.
  Value keysToWrite(const Chunk &chunk);
  Value writeColumns(const Chunk &chunk, Value keys, Value values, Value state);
  Value writeSum(const Chunk &chunk, Value sum);
  State write(const Chunk &chunk, Value keys, Value values, State state);
  Reading readingOf(Value head, Value begin, const Chunk *chunk, Value sum);
  /// Stores block `number` of the outputs of a query head; `values`: the block that the chunk writes, or null.
  Value readColumns(Value output, const Reading &reading, Value member, Value begin, Value number, Value values,
                    Value state);
  /// Computes the outputs of all query heads of this task for the chunk at `begin`, which writes `values`. These are
  /// null if the state includes all keys.
  using ReadingOfHead = llvm::function_ref<Reading(Value head, Value member)>;
  Value read(Value output, Value begin, ReadingOfHead reading, Value values, const State &state);
  /// An element of the output: what is read from the state, times a factor of its row, plus what is read from the
  /// chunk, by a divisor.
  Value outputOf(mlir::ValueRange args, bool hasFactor, double scale, bool hasWithin, bool isNormalized);
  /// The divisors of normalized outputs, else null.
  Value divisorsOf(Value entering, Value factor, double scale, Value within, Value sum);
  llvm::SmallVector<Value> emitTask(mlir::ValueRange parts);
  /// Those that the task reads, or zeros, in the memory of the final state if `isInPlace`.
  Value initialStates(mlir::ValueRange parts);
  /// The causal recurrence from the state and the output in `carried`, by chunks or position by position.
  llvm::SmallVector<Value> visitChunksOrPositions(mlir::ValueRange carried);
  llvm::SmallVector<Value> visitChunks(mlir::ValueRange carried);
  llvm::SmallVector<Value> visitChunk(Chunk chunk, mlir::ValueRange carried);
  /// The same with what does not depend on columns.
  llvm::SmallVector<Value> visitColumns(const Chunk &chunk, const Writing &writing, ReadingOfHead reading, Value keys,
                                        mlir::ValueRange carried);
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
  int64_t blockColumns = 0;  ///< of values, in a block
  bool scalesValues = false; ///< what is written decays in place of the keys, if the decay is not of rows
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_LINEARFORWARDTASKS_H
