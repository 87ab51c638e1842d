//===- SplitPlan.h - The work items of split-KV attention ---------*- C++ -*-===//
//
// An item is one chunk of the keys of a KV head, for some of the query heads that share it. Chunks start at absolute
// multiples of the schedule's columns, so results do not depend on the plan. Only chunks that mask and lengths make
// visible are planned.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_SPLITPLAN_H
#define SACCADE_LIB_TILING_SPLITPLAN_H

#include "AttentionSteps.h"
#include "Sequences.h"

namespace saccade {

/// Emits the i1 condition that the split-KV schedule of `op` applies to a sequence of `queries` queries; a constant if
/// these are.
mlir::Value usesSplitKV(mlir::OpBuilder &b, attn::AttentionOp op, mlir::Value queries);

/// The split-KV items of all sequences, ordered by sequence, chunk, KV head and head tile. Consecutive tasks read the
/// same keys, or the same positions of other heads, which share pages of memory if heads are an inner dimension. If all
/// sequences have the same chunks, the plan is a closed form; otherwise serial code lists them in tables.
class SplitPlan {
public:
  /// Plans `op`. Sequences with more queries than the schedule of split-KV states have no items. `onDevice`: a task
  /// lists the items of ragged sequences, so `items` is the capacity of the list; dense sequences have a closed form,
  /// which may contain chunks that are not visible.
  SplitPlan(mlir::OpBuilder &b, attn::AttentionOp op, Sequences &sequences, bool onDevice);

  mlir::Value items;          ///< number of items, index
  mlir::Value kvHeads;        ///< KV heads of each sequence
  mlir::Value headsPerKVHead; ///< query heads that share a KV head
  mlir::Value maxTiles;       ///< maximum number of head tiles of a KV head
  mlir::Value isSingle;       ///< whether no KV head has several chunks, i1; null if that is not known before the loops

  /// All items of some query heads of a KV head. Chunk i of head tile t is item `firstItem` + i · `stride` + t.
  struct Group {
    mlir::Value sequence, kvHead;
    mlir::Value queries; ///< of the sequence, at most those of the schedule
    mlir::Value tiles;   ///< number of head tiles
    mlir::Value firstItem, stride, firstChunk;
    mlir::Value chunks; ///< number of chunks; 0 if the sequence is not split
  };
  Group group(mlir::OpBuilder &b, mlir::Value sequence, mlir::Value kvHead);
  /// One item: chunk `chunk` (absolute) of `group`, for the heads of tile `tile`.
  struct Item {
    Group group;
    mlir::Value chunk, tile;
    mlir::Value isFirst; ///< whether the chunk is the first of its group
    mlir::Value isItem;  ///< whether the item exists; null means true
  };
  Item item(mlir::OpBuilder &b, mlir::Value number);
  /// The query heads of tile `tile` of a group; none if `tile` is out of bounds.
  Heads heads(mlir::OpBuilder &b, const Group &group, mlir::Value tile);
  /// The tile of head `head` of the KV head of a group.
  mlir::Value tileOf(mlir::OpBuilder &b, const Group &group, mlir::Value head);
  /// An upper bound of the rows of an item, at most those of the schedule, or those of one head.
  mlir::Value maxRows(mlir::OpBuilder &b);

private:
  struct Chunks {
    mlir::Value first, count;
  };
  mlir::Value headsPerTile(mlir::OpBuilder &b, mlir::Value tiles);
  mlir::Value headsPerSlot(mlir::OpBuilder &b);
  Chunks chunksOf(mlir::OpBuilder &b, attn::AttentionOp sequence, mlir::Value slot, bool readsBounds);
  mlir::Value queriesOf(mlir::OpBuilder &b, mlir::Value sequence);
  mlir::Value tilesOf(mlir::OpBuilder &b, mlir::Value queries);
  void listItems(mlir::OpBuilder &b);
  mlir::Value capacity(mlir::OpBuilder &b);

  attn::AttentionOp op;
  Sequences &sequences;
  attn::SplitKVAttr schedule;
  bool onDevice;
  /// A slot is the KV heads of a sequence that have the same chunks: one head if the mask depends on the head, else
  /// all.
  bool dependsOnHead = false;
  mlir::Value slots; ///< of each sequence
  Chunks common;     ///< of all slots, in closed form
  /// Tables; null in closed form. `total` has one element, the number of items.
  mlir::Value slotOfItem, firstItems, firstChunks, chunkCounts, total;
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_SPLITPLAN_H
