//===- HeadSizeOrigins.h - Where the head size comes from --------------*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_HEADSIZEORIGINS_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_HEADSIZEORIGINS_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/SmallVector.h"

namespace saccade::attn {

/// A static extent that a head size was split from, or the reduced extent of the matmul that computed it
/// (`isProjected`).
struct HeadSizeOrigin {
  int64_t extent;
  bool isProjected;
};

/// The static extents that dimension `dim` of the ranked tensor `value` comes from, nearest first. Follows casts,
/// reshapes, transposes, slices and elementwise ops up to the first matmul.
llvm::SmallVector<HeadSizeOrigin> findHeadSizeOrigins(mlir::Value value, unsigned dim);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_HEADSIZEORIGINS_H
