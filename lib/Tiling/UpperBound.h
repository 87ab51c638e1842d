//===- UpperBound.h - Constant bounds of tile sizes ---------------*- C++ -*-===//
#ifndef SACCADE_LIB_TILING_UPPERBOUND_H
#define SACCADE_LIB_TILING_UPPERBOUND_H

#include "mlir/IR/OpDefinition.h"

namespace saccade {

/// Returns a constant that the size of a tile does not exceed, or nullopt if none follows from the minima, maxima and
/// selects that compute it. Tiling limits the last tile of a dimension by an `affine.min` with the tile size.
std::optional<int64_t> findUpperBound(mlir::OpFoldResult size);

} // namespace saccade

#endif // SACCADE_LIB_TILING_UPPERBOUND_H
