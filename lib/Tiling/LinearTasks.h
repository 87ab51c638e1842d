//===- LinearTasks.h - The tasks of linear attention --------------*- C++ -*-===//
//
// What the tilings of attn.linear and attn.linear_gradient share: a parallel loop over sequences and heads of states,
// and the loads and stores of a task, which visits the chunks of its sequence.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_LINEARTASKS_H
#define SACCADE_LIB_TILING_LINEARTASKS_H

#include "LinearChunk.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/PatternMatch.h"

namespace saccade {

/// The tasks of an op. A task has one sequence and one head of states, or `heads` that share queries and keys.
class LinearTasks : protected ChunkEmitter {
protected:
  LinearTasks(mlir::IRRewriter &rewriter, attn::LinearOpInterface op, bool onDevice);

  /// The operands of a chunk, in the type of the state.
  struct Chunk {
    Value begin; ///< of the sequence
    Value keys, values, beta;
    Value erase; ///< the keys at which the delta rule reads; `keys` without an own operand
    ChunkDecay decay;
    Value queries;       ///< if they are loaded with the keys, else null
    Value queryProducts; ///< of `queries` with the keys, not decayed unless the decay is of rows
    Value eraseProducts; ///< those of `erase`
  };

  /// Checks head sizes, and emits what all tasks read before the loops and the destinations of the results. The first
  /// `filledResults` of them are 0 at positions outside of the sequences. `isEmpty`: the results have no elements.
  llvm::FailureOr<llvm::SmallVector<Value>> prepare(unsigned filledResults, bool &isEmpty);
  /// A parallel loop over sequences, heads and, if it is set, `parts`, whose tasks are named `name`. `body` gets the
  /// slices of `inits` at its `places` and returns their new contents.
  using Places = llvm::function_ref<llvm::SmallVector<Place>()>;
  using TaskBody = llvm::function_ref<llvm::SmallVector<Value>(mlir::ValueRange parts)>;
  mlir::scf::ForallOp overTasks(llvm::StringRef name, mlir::ValueRange inits, Places places, TaskBody body,
                                mlir::OpFoldResult parts = {});
  /// Runs `body(begin, carried)` over the chunks of the sequence with `size` set, `isForward` or from the last to the
  /// first. With `first` and `end`, over those of the positions [first, end), which are forward.
  llvm::SmallVector<Value> overChunks(bool isForward, mlir::ValueRange inits, CarryingBody body, Value first = {},
                                      Value end = {});
  /// Sets `size` and `present` for the chunk at `begin`.
  void beginChunk(Value begin);
  /// Runs `body(head, member, carried)` for the query heads of the current state; `member`: the number in the task.
  llvm::SmallVector<Value> overQueryHeads(mlir::ValueRange inits,
                                          llvm::function_ref<llvm::SmallVector<Value>(Value, Value, mlir::ValueRange)>);

  //===--- Operands ---===//
  /// The type in which elements of an operand are kept: that of operands of matmuls if they have it, else that of sums.
  mlir::Type operandType(Value tensor) {
    return mlir::getElementTypeOrSelf(tensor) == productType ? productType : type;
  }
  virtual Value loadFeatures(Value tensor, attn::DimsAttr dims, Value head, Value begin) {
    return loadRows(tensor, dims, head, begin);
  }
  Chunk loadChunk(Value begin);
  /// The operands of a chunk that do not differ between the heads of a task, and those that do.
  Chunk loadKeys(Value begin);
  void loadHead(Chunk &chunk);
  Value loadRows(Value tensor, attn::DimsAttr dims, Value head, Value begin);
  /// `columns` columns of the rows of a chunk, from column `first` on, in an operand.
  IndexedOperand rowsOf(Value tensor, attn::DimsAttr dims, Value head, Value begin, Value first, int64_t columns);
  /// `columns` columns of the rows of a chunk from column `first` on, as elements of type `element`.
  Value loadColumns(Value tensor, attn::DimsAttr dims, Value head, Value begin, Value first, int64_t columns,
                    mlir::Type element);
  /// A temporary of the positions of the chunk and `columns` columns, a vector for 0, that `store` fills: it gets the
  /// rows of the sequence and returns their contents. The rows behind it become `padding`.
  Value ofPositions(int64_t columns, mlir::Type element, double padding, llvm::function_ref<Value(Value)> store);
  /// The rows of `matrix`, or the elements of a vector, that are positions of the sequence; and `matrix` with these.
  Value presentRows(Value matrix);
  Value insertPresentRows(Value part, Value matrix);
  Value loadFactor(Value tensor, attn::AxesAttr axes, Value begin, bool isDecay);
  /// The number of a head of keys, or of another operand that value heads share.
  Value headOf(Value tensor, attn::DimsAttr dims);
  /// Where a task stores rows of its sequence: `heads` heads from `first` on, `columns` elements of each.
  Place placeOfRows(llvm::ArrayRef<attn::Dim> dims, Value first, Value heads, int64_t columns);
  /// The same for all query heads of the task.
  Place placeOfQueries(attn::DimsAttr dims, int64_t columns);
  /// Where a task stores its states, and the state of the current head in the slice at this place.
  Place placeOfState(int64_t columns);
  Place placeInState(int64_t columns);
  /// The same place in a slice at `place`: its offsets are 0.
  Place atBegin(Place place);
  /// Makes a place of the states of a task that of one head.
  void takeHead(Place &place, Value head);
  /// Stores rows [`begin`, `begin` + size) of head `member` into a slice at `placeOfRows`.
  using Rounding = llvm::function_ref<Value(mlir::ValueRange)>;
  Value storeRows(Value into, llvm::ArrayRef<attn::Dim> dims, Value member, Value begin,
                  llvm::ArrayRef<IndexedOperand> rows, Rounding element);
  /// The same for `columns` columns from column `first` on.
  Value storeColumns(Value into, llvm::ArrayRef<attn::Dim> dims, Value member, Value begin, Value first,
                     int64_t columns, llvm::ArrayRef<IndexedOperand> rows, Rounding element);
  Value storeRows(Value into, llvm::ArrayRef<attn::Dim> dims, Value member, Value begin, Value rows);

  /// Memory that two tensors of one shape do not share, unlike that of tensor.empty.
  Value allocated(llvm::ArrayRef<mlir::OpFoldResult> sizes, mlir::Type element);

  //===--- State ---===//
  /// [depth, columns] of the state of this task, from column `first` on; without the column dimension if `isVector`.
  Value loadState(Value tensor, mlir::OpFoldResult first, int64_t columns, bool isVector = false);
  /// The same for the columns of the task; 0 for a null tensor.
  Value stateOrZeros(Value tensor);
  Value storeState(Value state, Value into, int64_t first);
  /// The state before the chunk, or a vector of its rows, decayed by the whole chunk.
  Value decayState(const Chunk &chunk, Value state);

  //===--- Chunks ---===//
  /// The decayed products of `queries` with the keys of the chunk · `scale`, 0 above the diagonal.
  Value scores(Value queries, const Chunk &chunk, double scale = 1);
  /// −beta · the decayed products of erase keys with keys, 0 on the diagonal and above; beta is that of the row or, if
  /// `ofEarlier`, of the column.
  Value negativeSystem(const Chunk &chunk, bool ofEarlier);
  /// The products of `x` with the keys, decayed if the decay is of rows, not masked.
  Value productsWithKeys(Value x, const Chunk &chunk);
  /// `products`, of positions and keys, in place: decayed, unless they are, 0 above the diagonal (`isStrict`: on it),
  /// and multiplied by `scale` and `factor`, which is null or a number for each index of loop `loopOfFactor`. Products
  /// that heads share, `areShared`, are kept.
  Value weighted(Value products, bool areShared, const Chunk &chunk, bool isStrict, double scale, Value factor,
                 unsigned loopOfFactor);
  /// What the delta rule leaves of the values: v − Sᵀ e, where the state S has the positions before the own one.
  Value remainders(const Chunk &chunk, Value state);
  /// beta · `x`.
  Value timesBeta(const Chunk &chunk, Value x);

  Value extentOf(Value tensor, attn::DimsAttr dims, attn::Dim dim) {
    return asIndex(attn::getDimSize(b, loc, tensor, dims, dim));
  }

  mlir::IRRewriter &rewriter;
  attn::LinearOpInterface op;
  bool onDevice; ///< a task computes the table of ragged sequences
  int64_t depth = 0, valueDepth = 0;
  mlir::OpFoldResult batches; ///< of the tasks that are emitted
  int64_t heads = 1;          ///< of states of a task; several ones share queries, keys and erase keys
  Value starts;               ///< of ragged sequences, clamped to the operands; null for dense ones
  Value sequence, stateHead;
  Value firstHead, headInTask; ///< `stateHead` is their sum
  Value partOfTask;            ///< of the parts of a head; null without
  Value firstColumn;           ///< of the values that the task has
  int64_t taskColumns = 0;     ///< their number
  Value start;                 ///< of the sequence in the operands; null for 0
  mlir::OpFoldResult length;
  /// Positions of the sequence in the current chunk. If chunks are padded, `size` is that of a whole chunk.
  mlir::OpFoldResult present;
  bool arePadded = false;
  Value group;       ///< query heads of a state
  Value repetitions; ///< states of a query head

private:
  struct Rows {
    llvm::SmallVector<mlir::OpFoldResult> offsets, sizes;
    llvm::SmallVector<bool> isKept;
    llvm::SmallVector<unsigned> loops;
  };
  /// The rank-reducing slice of a chunk in a tensor, and the loops that index its kept dimensions.
  Rows rowsAt(llvm::ArrayRef<attn::Dim> dims, mlir::OpFoldResult batch, Value head, Value begin,
              mlir::OpFoldResult first, int64_t columns);
  mlir::LogicalResult checkSizes();
  void beginTask(mlir::scf::ForallOp loop);
};

/// The element type of the operands of matmuls of `op`: bf16 for bf16, else that of the state.
mlir::FloatType getProductType(attn::LinearOpInterface op);

} // namespace saccade

#endif // SACCADE_LIB_TILING_LINEARTASKS_H
