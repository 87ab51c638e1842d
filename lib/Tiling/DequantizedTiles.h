//===- DequantizedTiles.h - The weights that a task dequantizes ---*- C++ -*-===//
#ifndef SACCADE_LIB_TILING_DEQUANTIZEDTILES_H
#define SACCADE_LIB_TILING_DEQUANTIZEDTILES_H

#include "mlir/IR/PatternMatch.h"

namespace saccade {

/// Replaces the dequantized weights that matmuls in tasks read by attn.load_dequantized of their rows.
mlir::LogicalResult loadDequantizedTiles(mlir::IRRewriter &rewriter, mlir::Operation *root);

} // namespace saccade

#endif // SACCADE_LIB_TILING_DEQUANTIZEDTILES_H
