//===- MaskTables.h - Block minima and maxima of mask captures ----*- C++ -*-===//
//
// Builds the tables that `RuntimeMaskInputs` reads.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_MASKTABLES_H
#define SACCADE_LIB_TILING_MASKTABLES_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

namespace saccade {

/// The tables of the captured tensors of a function, each built once.
class MaskTables {
public:
  /// Returns the minimum and maximum of each block of 64 elements along the last dimension of `tensor`, as tensors of
  /// its shape with the last extent divided by 64, rounded up. They are built before the parallel loop around `user`.
  std::pair<mlir::Value, mlir::Value> of(mlir::Value tensor, mlir::Operation *user);

private:
  llvm::DenseMap<std::pair<mlir::Value, mlir::Block *>, std::pair<mlir::Value, mlir::Value>> made;
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_MASKTABLES_H
