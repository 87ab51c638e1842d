//===- AttentionSteps.h - The steps of attention on one sequence --*- C++ -*-===//
//
// Emits the parts of which every tiling of attention consists: an initial state, steps over tiles of keys, and the
// results of a state. TileKeys combines them for one head, SplitKV for the heads that share a KV head.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_ATTENTIONSTEPS_H
#define SACCADE_LIB_TILING_ATTENTIONSTEPS_H

#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"
#include "saccade/Dialect/Attn/Analysis/Stability.h"
#include "saccade/Dialect/Attn/IR/Position.h"
#include "saccade/Support/IndexEmitter.h"

namespace saccade {

/// The heads [first, first + count) of one KV head. Row i · count + h of their state is query i of head first + h.
/// With a null `count`, the single head `first`, whose dimension is dropped.
struct Heads {
  mlir::Value first, count;
};

/// A rank-reducing slice of a tensor; dropped dimensions have size 1.
struct Slice {
  llvm::SmallVector<mlir::OpFoldResult> offsets, sizes, strides;
  llvm::SmallBitVector dropped;

  void add(mlir::OpFoldResult offset, mlir::OpFoldResult size, mlir::OpFoldResult stride, bool isDropped = false);
  /// Adds one position, whose dimension is dropped.
  void addPosition(mlir::OpFoldResult position);
  mlir::Value extract(mlir::OpBuilder &b, mlir::Location loc, mlir::Value from) const;
  mlir::Value insert(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value, mlir::Value into) const;
};

/// Emits steps of `op`. Positions of queries and keys are relative to element 0, unless they are called absolute.
struct AttentionSteps : IndexEmitter {
  /// `op` has one sequence, or its lengths are scalars and only the values below are used.
  AttentionSteps(mlir::OpBuilder &b, attn::AttentionOp op);

  attn::AttentionOp op;
  mlir::FloatType type;   ///< of the state
  int64_t columns;        ///< of the accumulator: the head size of the values, rounded up to whole registers
  attn::Position at;      ///< absolute position of element 0
  Value queries, keys;    ///< extents
  Value queryEnd, keyEnd; ///< absolute ends given by `q_len` and `kv_len`, not clamped
  Value validQueries;     ///< number of queries within the length

  mlir::OpFoldResult fold(Value value) { return mlir::getAsOpFoldResult(value); }
  /// The extent of `dim` in an operand.
  Value sizeOf(Value operand, attn::DimsAttr dims, attn::Dim dim);

  /// The keys that mask and lengths make visible to some valid query of head `head`, absolute. May be empty or exceed
  /// the operand.
  attn::KeyRange visibleKeys(Value head);

  /// Whether maxima of states are those of scores: the log-sum-exp is a result.
  bool hasNaturalMax() { return op.getLse() != nullptr; }

  //===--- States ---===//
  /// A state with uninitialized parts of the shape `leading` × `rows` (× columns or bins).
  attn::State emptyState(llvm::ArrayRef<mlir::OpFoldResult> leading, mlir::OpFoldResult rows);
  /// The state without keys, written to the parts of `destination`.
  attn::State filledState(const attn::State &destination);
  /// A new state without keys of `rows` rows. Like filledState(emptyState({}, rows)).
  attn::State newState(int64_t rows);
  /// Adds the sinks to the rows of the first `count` heads (null means the single head).
  void addSinks(attn::State &state, Heads heads, Value count);
  /// The rows of `heads` at the start of each part, or those of head `head` (relative) if it is not null.
  attn::State rowsOf(const attn::State &state, Value rows);
  attn::State rowsOfHead(const attn::State &state, Heads heads, Value head, Value rows);

  //===--- Steps ---===//
  struct Step {
    attn::ScheduleAttr schedule;
    bool unpacked = false;
    /// Max and sum are final, and the weight region is applied to normalized weights. The state has no other parts.
    bool isFinal = false;
    /// What is proved of the maxima of this step; `InOrder` if it is one of a loop from the first key on.
    attn::FiniteMax finiteMax = attn::FiniteMax::Never;
  };
  /// The slice of positions [begin, begin + count) of an operand.
  Slice sliceOf(Value operand, attn::DimsAttr dims, Heads heads, Value begin, Value count);
  /// The tile of these positions.
  Value tile(Value operand, attn::DimsAttr dims, Heads heads, Value begin, Value count) {
    return sliceOf(operand, dims, heads, begin, count).extract(b, loc, operand);
  }
  /// Accumulates `count` keys of KV head `kvHead` from `begin` on into the rows of `query`, a tile of `heads`.
  attn::State accumulate(const attn::State &state, Value query, Heads heads, Value kvHead, Value begin, Value count,
                         Step step);

  //===--- Results ---===//
  /// The results of `op` in the order of the operands of attn.finalize: output, log-sum-exp and its low part, tallies,
  /// row maximum and its position.
  llvm::SmallVector<Value> orderedResults();
  /// The results of the state of one head, written to `destinations` (see orderedResults).
  llvm::SmallVector<Value> finalize(const attn::State &state, mlir::ValueRange destinations,
                                    attn::ScheduleAttr schedule);
};

/// `dims` without batch and head.
attn::DimsAttr tileDims(attn::DimsAttr dims);

} // namespace saccade

#endif // SACCADE_LIB_TILING_ATTENTIONSTEPS_H
