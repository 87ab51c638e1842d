//===- ExpandViews.h - Expanded views as address arithmetic -------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_COMMON_EXPANDVIEWS_H
#define SACCADE_LIB_CODEGEN_COMMON_EXPANDVIEWS_H

#include "mlir/IR/Operation.h"

namespace saccade {

/// Rewrites every memref.expand_shape in `root` to memref.reinterpret_cast. Within a group, a stride is the product of
/// the source stride and the inner extents. (The upstream pattern rejects groups with several dynamic extents.)
void expandViews(mlir::Operation *root);

} // namespace saccade

#endif // SACCADE_LIB_CODEGEN_COMMON_EXPANDVIEWS_H
