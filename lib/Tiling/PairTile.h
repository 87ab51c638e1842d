//===- PairTile.h - Tiles of pairs of queries and keys ------------*- C++ -*-===//
#ifndef SACCADE_LIB_TILING_PAIRTILE_H
#define SACCADE_LIB_TILING_PAIRTILE_H

#include "StructuredEmitter.h"

namespace saccade {

/// The values of a task that indices are computed from.
struct TaskPositions {
  mlir::Value batch, kvHead, group, head; ///< relative; query heads per KV head
  mlir::Value absoluteBatch, absoluteHead;
  mlir::Value firstQuery, firstKey; ///< absolute position of element 0
  mlir::Value queries, keys;        ///< extents of the sequence
  mlir::Value queryEnd, keyEnd;     ///< results of `attn.length`
};

/// A tile of pairs of queries and keys; begins are relative to element 0.
struct PairTile {
  mlir::Value query, key;
  StructuredEmitter::Extent queries, keys;
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_PAIRTILE_H
