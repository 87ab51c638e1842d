//===- HeadSections.h - The order of work items over heads --------*- C++ -*-===//
//
// A GPU starts work items in their order. If the longest items of all heads come first, short ones are left for the
// end, and multiprocessors end at nearly the same time. But items of a head read the same keys and values, which should
// be in the L2 cache for all of them. So heads form sections whose keys and values fit into it, one after the other;
// within a section, the longest items of all heads come first (FlashAttention-3, hopper/tile_scheduler.hpp,
// DynamicPersistentTileScheduler).
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_HEADSECTIONS_H
#define SACCADE_LIB_TILING_HEADSECTIONS_H

#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade {

/// The work items of the heads of an attention, by section, item of a head and head.
class HeadSections {
public:
  /// Emits the extents of sections of query heads that share keys and values. `heads`: query heads of all batches,
  /// `items`: work items of each, `keys`: positions of keys of a KV head (all index). Sections have nearly equal sizes,
  /// so that the last one, with which a launch ends, is not a small remainder.
  HeadSections(mlir::OpBuilder &b, attn::AttentionOp op, mlir::Value heads, mlir::Value items, mlir::Value keys);

  mlir::Value count; ///< work items of all heads

  struct Item {
    mlir::Value head;   ///< < `heads`
    mlir::Value number; ///< < `items`
  };
  /// Emits the item that work item `task` < `count` is.
  Item item(mlir::OpBuilder &b, mlir::Location loc, mlir::Value task) const;

private:
  mlir::Value heads;
  mlir::Value size; ///< heads of a section, a multiple of those that share keys; the last one may have fewer
  mlir::Value itemsOfSection;
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_HEADSECTIONS_H
