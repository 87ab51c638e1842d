//===- ExpandViews.h - Expanded views as address arithmetic -------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_COMMON_EXPANDVIEWS_H
#define SACCADE_LIB_CODEGEN_COMMON_EXPANDVIEWS_H

#include "mlir/IR/Operation.h"

namespace saccade {

/// Makes every memref.expand_shape in `root` explicit: strides grow by the extents from the innermost dimension of a group
/// outwards. (The upstream pattern cannot do it where several extents of a group are dynamic.)
void expandViews(mlir::Operation *root);

} // namespace saccade

#endif // SACCADE_LIB_CODEGEN_COMMON_EXPANDVIEWS_H
