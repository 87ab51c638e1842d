//===- LaneMemory.h - One element a lane, from and to any buffer --*- C++ -*-===//
//
// Loads and stores of `lanes` elements whose positions are given dimension by dimension. The cheapest
// access that the strides allow is chosen: a scalar, a vector, a masked vector, a gather.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_LANEMEMORY_H
#define SACCADE_LIB_CODEGEN_CPU_LANEMEMORY_H

#include "mlir/IR/Builders.h"

namespace saccade::cpu {

/// Where the lanes stand along one dimension of a buffer.
struct LaneIndex {
  mlir::Value base;   ///< index of lane 0
  int64_t step = 0;   ///< lane i stands at base + i * step
  mlir::Value vector; ///< instead of both: vector<lanes x index>

  bool isUniform() const { return !vector && step == 0; }
};

/// Reads memref[indices] into a vector<lanes x element>. Only lanes of `mask` (vector<lanes x i1>, null for all) are
/// read, the others are 0; where every index is the same in all lanes, that one element is read whatever the mask
/// says. `indices` has one entry a dimension.
mlir::Value loadLanes(mlir::OpBuilder &b, mlir::Location loc, mlir::Value memref, llvm::ArrayRef<LaneIndex> indices,
                      unsigned lanes, mlir::Value mask);

/// Writes a vector to memref[indices], only the lanes of `mask` (null for all). No two lanes may meet.
void storeLanes(mlir::OpBuilder &b, mlir::Location loc, mlir::Value vector, mlir::Value memref,
                llvm::ArrayRef<LaneIndex> indices, mlir::Value mask);

/// base + i * step in lane i, as a vector of `base`'s type.
mlir::Value affineLanes(mlir::OpBuilder &b, mlir::Location loc, mlir::Value base, int64_t step, unsigned lanes);

/// vector<lanes x i1> that holds for the first `count` (index) lanes; no lane for a negative count.
mlir::Value firstLanes(mlir::OpBuilder &b, mlir::Location loc, mlir::Value count, unsigned lanes);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_LANEMEMORY_H
