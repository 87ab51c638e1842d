//===- Roles.h - What the warpgroups of sm_90a do -----------------*- C++ -*-===//
//
// The first warpgroup issues bulk copies of keys and values to a ring of stages in shared memory; the others multiply
// them (FlashAttention-3; Shah et al. 2024). Both roles run the same loops over tiles, so that they need no messages
// but the barriers of the stages.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_ROLES_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_ROLES_H

#include "../VisibleTiles.h"
#include "Ring.h"
#include "TensorMap.h"
#include "WarpgroupShape.h"

namespace saccade::device {

/// Common to both roles: shared memory, and the loop over the tiles of keys.
class WarpgroupRole {
public:
  using Value = mlir::Value;
  /// `shared` (i32) is the address of the shared memory of the item; `steps` is private memory that counts the steps of
  /// the ring so far (i32).
  WarpgroupRole(const Emitter &e, attn::AccumulateOp op, const WarpgroupShape &shape, Value shared, Value steps);

protected:
  Value rowsOf(Value operand, attn::DimsAttr dims);
  Fragment makeFragment(const Lane &lane);
  FragmentSoftmax makeSoftmax(const Lane &lane);
  /// Emits `body` for each tile, the same ones in both roles.
  void forTiles(FragmentSoftmax &softmax, llvm::function_ref<void(const KeyTile &)> body);

  Value step() { return e.load(steps, 0); }
  void nextStep() { e.store(e.add(step(), 1), steps, 0); }
  Value keyTile(Value stage) { return place(shape.keyStage(0), shape.tileBytes(shape.keys(), shape.depth), stage); }
  Value valueTile(Value stage) {
    return place(shape.valueStage(0), shape.tileBytes(shape.keys(), shape.valueDepth), stage);
  }
  /// Whether this thread is the first of its warp.
  Value isLeader() { return e.isEqual(e.rem(e.thread(), 32), e.i32(0)); }

  Emitter e;
  attn::AccumulateOp op;
  const WarpgroupShape &shape;
  Value shared, steps;
  Mbarrier queryFull;
  Ring keys, values;

private:
  Value place(int64_t first, int64_t bytes, Value stage) { return e.add(e.add(shared, first), e.mul(stage, bytes)); }
};

/// Copies operands. One warp runs it, because all lanes together decide which tiles are visible; one lane copies.
class Producer : WarpgroupRole {
public:
  using WarpgroupRole::WarpgroupRole;

  void copyQueries(const MappedOperand &query, Value map);
  void copyTiles(const MappedOperand &key, const MappedOperand &value, Value keyMap, Value valueMap);

private:
  void copy(const MappedOperand &operand, Value map, Value row, int64_t rows, int64_t columns, Value target,
            const Mbarrier &full);
};

/// Computes the rows of a warpgroup. The softmax of a tile overlaps with the product of the weights of the tile before
/// it and its values, so these weights are pending after a step: until the next one, or until `finish`.
class Consumer : WarpgroupRole {
public:
  /// `weights` is private memory for the `shape.weightWords()` words (i32) of pending weights. `endsWithTensor` says
  /// that rows of values that are not keys of the step are zeros.
  Consumer(const Emitter &e, attn::AccumulateOp op, const WarpgroupShape &shape, Value shared, Value steps,
           Value weights, const PrivateState &state, bool endsWithTensor);

  void computeTiles();
  /// Multiplies the pending weights, if there are any, and resets rows after the last query.
  void finish();

private:
  llvm::SmallVector<Value> startScores(Value queries, Value stage);
  llvm::SmallVector<Value> startSums(Value stage);
  /// The factors of rows, then the packed weights.
  using Result = llvm::SmallVector<Value>;
  Result applySoftmax(FragmentSoftmax &softmax, llvm::SmallVector<Value> &scores, const KeyTile &tile, Value isFull,
                      llvm::ArrayRef<Value> visible);
  /// Warpgroups start their products in turns, so that the softmax of one overlaps with products of another one: waits
  /// for the turn of this warpgroup, and passes it on. Nothing if the shape has no turns.
  NamedBarrier turnOf(Value group);
  void takeTurn();
  void passTurn();
  /// The first tile of the item, which has no product to overlap with.
  Result startTile(FragmentSoftmax &softmax, const KeyTile &tile, Value queries);
  /// A mask that is more than its bounds is evaluated before scores take registers.
  Result continueTile(FragmentSoftmax &softmax, const KeyTile &tile, Value queries, Value isFull);
  Result packWeights(llvm::ArrayRef<Value> factors, llvm::ArrayRef<Value> weights);
  llvm::SmallVector<Value> loadAll(Value memory);
  void storeAll(llvm::ArrayRef<Value> values, Value memory);
  /// Sets the rows of a tile that are not keys of this step to 0. They may be NaN, which a weight of 0 does not remove.
  void clearValues(Value first, const RingPlace &at);
  /// One arrival of the warp, which has waited for its products.
  void release(const RingPlace &at) { at.empty.arriveIf(e, isLeader()); }

  Value weights;
  const PrivateState &state;
  Lane lane;
  Value group; ///< index of the warpgroup among those that compute, i32
  bool endsWithTensor;
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_ROLES_H
