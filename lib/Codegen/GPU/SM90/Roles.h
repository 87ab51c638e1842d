//===- Roles.h - What the warpgroups of sm_90a do -----------------*- C++ -*-===//
//
// The first warpgroup issues bulk copies of keys and values to a ring of stages in shared memory; the others multiply
// them (FlashAttention-3; Shah et al. 2024). Both roles run the same loops over tiles, so that they need no messages
// but the barriers of the stages.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_ROLES_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_ROLES_H

#include "PagedTile.h"
#include "Ring.h"
#include "TensorMap.h"
#include "WarpgroupShape.h"

namespace saccade::device {

/// The place of an item among those of its CTA, and the shared memory of the CTA.
struct ItemPlace {
  mlir::Value shared;    ///< the address of the shared memory, i32
  mlir::Value items;     ///< of the CTA before this one, i32
  mlir::Value steps;     ///< private memory that counts the steps of the rings so far, i32
  mlir::Value firstStep; ///< this count at the start of the item, i32
};

/// Common to both roles: shared memory, and the scores, which determine the same tiles of keys in both.
class WarpgroupRole {
public:
  using Value = mlir::Value;
  WarpgroupRole(const Emitter &e, attn::AccumulateOp op, const WarpgroupShape &shape, const ItemPlace &place);

  /// Initialises the barriers of operands, by one thread.
  static void initBarriers(Emitter &e, const WarpgroupShape &shape, Value shared);

protected:
  Value rowsOf(Value operand, attn::DimsAttr dims);
  /// The heads of a query, whose rows are adjacent; null if the queries are of one head.
  Value heads();
  Value queryRows();
  Fragment makeFragment(const Lane &lane);
  FragmentScores makeScores(const Lane &lane);

  Value step() { return e.load(item.steps, 0); }
  void nextStep() { e.store(e.add(step(), 1), item.steps, 0); }
  Value isFirstStep() { return e.isEqual(step(), item.firstStep); }
  Value queryTile() { return e.add(item.shared, shape.queries()); }
  Value keyTile(Value stage) { return place(shape.keyStage(0), shape.tileBytes(shape.keys(), shape.depth), stage); }
  Value valueTile(Value stage) {
    return place(shape.valueStage(0), shape.tileBytes(shape.keys(), shape.valueDepth), stage);
  }

  Emitter e;
  attn::AccumulateOp op;
  const WarpgroupShape &shape;
  ItemPlace item;
  Ring queries, keys, values; ///< a step of the queries is an item

private:
  Value place(int64_t first, int64_t bytes, Value stage) {
    return e.add(e.add(item.shared, first), e.mul(stage, bytes));
  }
};

/// Queries that bulk copies read, and their tensor map.
struct MappedQueries {
  MappedOperand operand;
  mlir::Value map;
};

/// Copies operands. One warp runs it, because all lanes together decide which tiles are visible; one lane copies.
class Producer : WarpgroupRole {
public:
  using WarpgroupRole::WarpgroupRole;

  /// The keys of the first tile are copied before the queries, which wait for the end of the item before. Without
  /// `mapped` the consumers copy them. `maps` are those of keys and values.
  void copyTiles(const std::optional<MappedQueries> &mapped, const MappedOperand &key, const MappedOperand &value,
                 mlir::ValueRange maps);
  /// Copies the queries after the loop over tiles if it has no tile: each item completes a phase of their barriers.
  void copyQueriesOfNoTile(const MappedQueries &mapped);
  /// Waits until the consumers have released the queries of the item before, if they copy queries themselves.
  void waitForItemBefore() { queries.at(e, item.items).waitUntilEmpty(e); }

private:
  void copyQueries(const MappedQueries &mapped);
  /// The boxes of the tile that starts at row `first` (i32) of `operand`, which has `rows` rows; none if these are not
  /// in pages.
  std::optional<PagedTile> findBoxes(const MappedOperand &operand, Value rows, Value first);
  /// Copies a tile of `rows` rows from row `row` (i32) on, or those of `boxes`. All lanes of the warp execute it.
  void copy(const MappedOperand &operand, Value map, Value row, int64_t rows, int64_t columns, Value target,
            const Mbarrier &full, const std::optional<PagedTile> &boxes = std::nullopt);
};

/// Private memory of a thread for a tile whose values have not been multiplied.
struct PendingTile {
  mlir::Value weights; ///< `WarpgroupShape::weightWords()` words (i32)
  mlir::Value factors; ///< f32, of each row: the accumulator is rescaled when the product before is complete
};

/// Computes the rows of a warpgroup. The softmax of a tile overlaps with the product of the weights of the tile before
/// it and its values, so these weights are pending after a step: until the next one, or until `finish`.
class Consumer : WarpgroupRole {
public:
  /// `endsWithTensor` says that rows of values that are not keys of the step are zeros.
  Consumer(const Emitter &e, attn::AccumulateOp op, const WarpgroupShape &shape, const ItemPlace &place,
           const PendingTile &pending, const PrivateState &state, bool endsWithTensor);

  /// The named barrier of the warpgroups that compute; 0 is that of all threads.
  static constexpr int64_t barrier = 1;
  /// Waits for all threads that compute.
  void meet();

  void waitForQueries();
  /// Copies the queries to their tile, if the producer does not.
  void loadQueries();
  void computeTiles();
  /// Multiplies the pending weights, if there are any.
  void finish();
  /// Resets the state of rows after the last query: those after the length of their batch have results, too.
  void resetRowsAfterQueries();
  /// Lets the producer replace the queries, after the results, which may go through their memory, are stored. If the
  /// consumers copy queries, it only tells the producer that the item is complete.
  void releaseQueries();

private:
  llvm::SmallVector<Value> startScores(Value queries, Value stage);
  llvm::SmallVector<Value> startSums(Value stage);
  /// Warpgroups start their products in turns, so that the softmax of one overlaps with products of another one: waits
  /// for the turn of this warpgroup, and passes it on. Nothing if the shape has no turns.
  NamedBarrier turnOf(Value group);
  void takeTurn();
  void passTurn();
  /// The packed weights of the first tile of the item, which has no product to overlap with.
  llvm::SmallVector<Value> startTile(FragmentSoftmax &softmax, const KeyTile &tile, Value queries);
  /// The packed weights of a further tile. A mask that is more than its bounds is evaluated before scores take
  /// registers.
  llvm::SmallVector<Value> continueTile(FragmentSoftmax &softmax, const KeyTile &tile, Value queries, Value isFull);
  llvm::SmallVector<Value> packWeights(llvm::ArrayRef<Value> weights);
  /// Sets the rows of a tile that are not keys of this step to 0. They may be NaN, which a weight of 0 does not remove.
  void clearValues(Value first, const RingPlace &at);
  /// One arrival of the warp, which has waited for its products.
  void release(const RingPlace &at) { at.empty.arriveIf(e, e.isFirstLane()); }

  const PendingTile &pending;
  const PrivateState &state;
  Lane lane;
  Value group; ///< index of the warpgroup among those that compute, i32
  bool endsWithTensor;
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_ROLES_H
