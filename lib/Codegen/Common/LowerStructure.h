//===- LowerStructure.h - Conversion steps of CPU and GPU code ----*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_COMMON_LOWERSTRUCTURE_H
#define SACCADE_LIB_CODEGEN_COMMON_LOWERSTRUCTURE_H

#include "mlir/Transforms/DialectConversion.h"

namespace saccade {

/// Converts scf ops in `roots` to cf and affine ops to arith.
llvm::LogicalResult lowerStructure(llvm::ArrayRef<mlir::Operation *> roots);

/// Applies a full conversion of `root` with `patterns` to ops legal for `target`, and removes the casts between old and
/// new types.
llvm::LogicalResult convertFully(mlir::Operation *root, const mlir::ConversionTarget &target,
                                 mlir::RewritePatternSet patterns);

} // namespace saccade

#endif // SACCADE_LIB_CODEGEN_COMMON_LOWERSTRUCTURE_H
