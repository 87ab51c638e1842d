//===- WorkList.h - The work items of ragged attention ------------*- C++ -*-===//
//
// The lengths of ragged sequences are known at run time only. Code before the parallel loop lists the work items, so
// that no task computes padding and the longest items are scheduled first.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_WORKLIST_H
#define SACCADE_LIB_TILING_WORKLIST_H

#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace saccade {

/// The work items of several sequences. The items of one sequence are consecutive.
struct WorkList {
  mlir::Value sequences;   ///< tensor<?xindex>: the sequence of each item
  mlir::Value itemOffsets; ///< tensor<?xindex>: the first item of each sequence
  mlir::Value count;       ///< number of items, index. On a device the capacity of the list
  mlir::Value total;       ///< tensor<1xindex>: the number of items. Null if this is `count`

  struct Item {
    mlir::Value sequence;
    mlir::Value part;   ///< its number among the items of the sequence
    mlir::Value isItem; ///< whether the item exists; null means true. Else it is part 0 of sequence 0.
  };
  /// Reads item `number` < `count`.
  Item item(mlir::OpBuilder &b, mlir::Location loc, mlir::Value number) const;
};

/// Emits a list with `partsOf(i)` items for each sequence i < `count`. `costOf(i)`, at least 0, is the cost of one
/// item; the list is sorted by the bit width of the cost, descending. There are at most `capacity` items. `onDevice`: a
/// task lists them, and the host does not know their number.
WorkList listItems(mlir::OpBuilder &b, mlir::Location loc, mlir::Value count, mlir::Value capacity, bool onDevice,
                   llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Value)> partsOf,
                   llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Value)> costOf);

} // namespace saccade

#endif // SACCADE_LIB_TILING_WORKLIST_H
