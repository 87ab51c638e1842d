//===- VisibleTiles.h - Key tiles that a mask leaves --------------*- C++ -*-===//
//
// A mask that is more than its loop bounds may leave any tile of a CTA empty or full. Kernels skip empty tiles and do
// not evaluate the mask in full ones.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_VISIBLETILES_H
#define SACCADE_LIB_CODEGEN_GPU_VISIBLETILES_H

#include "Emitter.h"
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"

namespace saccade::device {

/// The queries and keys of one attn.accumulate, as extents of its tile, and its tiles of `width` keys.
struct TileLoop {
  mlir::Value queries, keys;
  mlir::Value heads;    ///< per query; null for one
  attn::KeyRange tiles; ///< as `FragmentScores::getTiles` returns it
  int64_t width;
};

/// A tile in the body of a loop over tiles.
struct KeyTile {
  mlir::Value first; ///< its first key, i32, relative to key 0 of the op
  /// Emits an i1: the mask holds for all of its pairs, and all of its keys exist.
  std::function<mlir::Value()> isFull;
  /// Emits code that takes the first key of the next tile and runs if there is one.
  std::function<void(llvm::function_ref<void(mlir::Value first)>)> ifNext;
};

/// Emits `body` for each tile in ascending order, after `start` with the first key of the first one. `isFull` emits
/// `KeyTile::isFull` of the tile with the given first key.
void forEachTile(Emitter &e, const TileLoop &loop, llvm::function_ref<void(mlir::Value first)> start,
                 llvm::function_ref<mlir::Value(mlir::Value first)> isFull,
                 llvm::function_ref<void(const KeyTile &)> body);

/// Emits `body` for each tile in ascending order, except for those that the mask leaves empty. `start` is emitted
/// before `body`, with the first key of a tile that is not announced by `ifNext`. The CTA takes all branches together.
///
/// A lane tests one of 32 tiles, and all lanes share the results, because a test waits for reads of memory. Every warp
/// does so, which takes no longer than one and needs no barrier.
void forEachVisibleTile(Emitter &e, attn::ScoringOpInterface op, const TileLoop &loop,
                        llvm::function_ref<void(mlir::Value first)> start,
                        llvm::function_ref<void(const KeyTile &)> body);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_VISIBLETILES_H
