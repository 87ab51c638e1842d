//===- FusionGroup.h - Structured ops that share a loop over tiles -*- C++ -*-===//
//
// Chooses the producers that are fused into the tile loop of an op, and the tile sizes.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_FUSIONGROUP_H
#define SACCADE_LIB_TILING_FUSIONGROUP_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/SetVector.h"

namespace saccade {

/// A structured op and its producers that are computed in the same parallel loop.
///
/// There are three kinds: a matmul with its initialization and epilogue; row reductions with their elementwise ops
/// (norms, softmax); and elementwise ops only. Every tile of a member is computed exactly once. The tile of a member
/// that is not used outside of the loop has a static size.
struct FusionGroup {
  mlir::linalg::LinalgOp root;
  llvm::SetVector<mlir::Operation *> members;   ///< `root` first, then producers, each after its users
  llvm::SmallPtrSet<mlir::Operation *, 4> kept; ///< members whose results are also used outside
  llvm::SmallVector<int64_t> tileSizes;         ///< one per loop of `root`; 0 if the loop is not tiled

  /// Whether any loop is tiled; false if the root has no parallel dimension.
  bool isTiled() const {
    return llvm::any_of(tileSizes, [](int64_t size) { return size != 0; });
  }
};

/// The size limits of a task.
struct TileLimits {
  int64_t tileElements;      ///< per tile, which should stay in cache together with its inputs
  int64_t temporaryElements; ///< per temporary inside of a task
};

/// Forms the group of `root`, an op on tensors that is not yet in a group. Only ops in its block are fused.
FusionGroup formGroup(mlir::linalg::LinalgOp root, TileLimits limits);

} // namespace saccade

#endif // SACCADE_LIB_TILING_FUSIONGROUP_H
