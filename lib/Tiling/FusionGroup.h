//===- FusionGroup.h - Structured ops that share a loop over tiles -*- C++ -*-===//
//
// Which producers are computed tile by tile beside the op that uses them, and how large the tiles are.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_FUSIONGROUP_H
#define SACCADE_LIB_TILING_FUSIONGROUP_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/SetVector.h"

namespace saccade {

/// A structured op and producers of it that are computed in the same parallel loop.
///
/// There are three kinds: a matrix product with its initial value and what is applied to its result; reductions over
/// rows with what surrounds them (norms, softmax); and elementwise ops alone. Every tile of a member is computed
/// exactly once, and the tile of a member that stays inside the loop has a size known now.
struct FusionGroup {
  mlir::linalg::LinalgOp root;
  llvm::SetVector<mlir::Operation *> members;   ///< `root` first, then producers, each behind its users
  llvm::SmallPtrSet<mlir::Operation *, 4> kept; ///< members whose results are used outside too
  llvm::SmallVector<int64_t> tileSizes;         ///< one a loop of `root`; 0 where the loop is not cut

  /// Whether there is a loop to make: not where the root has no parallel dimension.
  bool isTiled() const {
    return llvm::any_of(tileSizes, [](int64_t size) { return size != 0; });
  }
};

/// What a task may work on at once.
struct TileLimits {
  int64_t tileElements;      ///< of a tile, which with what it is computed from should stay near its processor
  int64_t temporaryElements; ///< of what stays inside of a task
};

/// The group of `root`, which computes tensors and is used by no group yet. Only ops of its block are taken.
FusionGroup formGroup(mlir::linalg::LinalgOp root, TileLimits limits);

} // namespace saccade

#endif // SACCADE_LIB_TILING_FUSIONGROUP_H
