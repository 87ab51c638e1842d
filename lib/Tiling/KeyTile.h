//===- KeyTile.h - Tiles of keys and values ------------------------*- C++ -*-===//
#ifndef SACCADE_LIB_TILING_KEYTILE_H
#define SACCADE_LIB_TILING_KEYTILE_H

#include "AttentionSteps.h"

namespace saccade {

/// A tile and its dimensions, `s` and `d` in either order.
struct KeyTile {
  mlir::Value tile;
  attn::DimsAttr dims;
};

/// Emits the tile `slice` of an operand with `dims`: a view or, if the operand is a slice of an attn.paged or of a
/// dequantization, a tile that is loaded and computed in scratch memory. Such a tile has at most `capacity` positions.
KeyTile emitKeyTile(mlir::OpBuilder &b, mlir::Location loc, mlir::Value operand, attn::DimsAttr dims,
                    const Slice &slice, int64_t capacity);

} // namespace saccade

#endif // SACCADE_LIB_TILING_KEYTILE_H
