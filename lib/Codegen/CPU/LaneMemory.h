//===- LaneMemory.h - Vector loads and stores with any strides ----*- C++ -*-===//
//
// Loads and stores of `lanes` elements whose positions are given per dimension. They become the cheapest access that
// the strides allow: scalar, vector, masked vector, or gather/scatter.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_LANEMEMORY_H
#define SACCADE_LIB_CODEGEN_CPU_LANEMEMORY_H

#include "mlir/IR/Builders.h"

namespace saccade::cpu {

/// Indices of the lanes along one dimension of a buffer.
struct LaneIndex {
  mlir::Value base;   ///< index of lane 0
  int64_t step = 0;   ///< lane i has index base + i * step
  mlir::Value vector; ///< replaces base and step: vector<lanes x index>

  bool isUniform() const { return !vector && step == 0; }
};

/// Reads memref[indices] into a vector<lanes x element>. Lanes outside `mask` (vector<lanes x i1>, null for all) are
/// not read and become 0. If all indices are uniform, the one element is read regardless of the mask. `indices` has one
/// entry per dimension.
mlir::Value loadLanes(mlir::OpBuilder &b, mlir::Location loc, mlir::Value memref, llvm::ArrayRef<LaneIndex> indices,
                      unsigned lanes, mlir::Value mask);

/// Writes the lanes of `vector` in `mask` (null for all) to memref[indices], which must differ in all lanes.
void storeLanes(mlir::OpBuilder &b, mlir::Location loc, mlir::Value vector, mlir::Value memref,
                llvm::ArrayRef<LaneIndex> indices, mlir::Value mask);

/// base + i * step in lane i, as a vector of `base`'s type.
mlir::Value affineLanes(mlir::OpBuilder &b, mlir::Location loc, mlir::Value base, int64_t step, unsigned lanes);

/// vector<lanes x i1> that is true for the first `count` (index) lanes; all false for a negative count.
mlir::Value firstLanes(mlir::OpBuilder &b, mlir::Location loc, mlir::Value count, unsigned lanes);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_LANEMEMORY_H
