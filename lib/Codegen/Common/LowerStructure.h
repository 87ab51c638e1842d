//===- LowerStructure.h - The conversion to LLVM that all code shares -*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_COMMON_LOWERSTRUCTURE_H
#define SACCADE_LIB_CODEGEN_COMMON_LOWERSTRUCTURE_H

#include "mlir/Transforms/DialectConversion.h"

namespace saccade {

/// Loops and branches in `root` become control flow, affine ops arithmetic.
llvm::LogicalResult lowerStructure(mlir::Operation *root);

/// Converts all of `root` by `patterns`, after which only what `target` takes may be there, and removes the casts between old
/// and new types.
llvm::LogicalResult convertFully(mlir::Operation *root, const mlir::ConversionTarget &target,
                                 mlir::RewritePatternSet patterns);

} // namespace saccade

#endif // SACCADE_LIB_CODEGEN_COMMON_LOWERSTRUCTURE_H
