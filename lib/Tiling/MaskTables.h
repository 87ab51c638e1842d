//===- MaskTables.h - Bounds of the blocks of what masks read -----*- C++ -*-===//
//
// The tables that `RuntimeMaskInputs` looks into.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_MASKTABLES_H
#define SACCADE_LIB_TILING_MASKTABLES_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

namespace saccade {

/// The tables of the captured tensors of a function, each made once.
class MaskTables {
public:
  /// The least and the greatest element of each block of 64 elements along the last dimension, as tensors of the
  /// extents of `tensor`, the last one divided. They are made before the parallel loop around `user`.
  std::pair<mlir::Value, mlir::Value> of(mlir::Value tensor, mlir::Operation *user);

private:
  llvm::DenseMap<std::pair<mlir::Value, mlir::Block *>, std::pair<mlir::Value, mlir::Value>> made;
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_MASKTABLES_H
