//===- Matmul.h - Matrix products and convolutions, their operands checked -*- C++ -*-===//
//
// Numbers of 16 bits are summed in f32. Transposed factors are in the maps of the product, not copied.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_MATMUL_H
#define SACCADE_IMPORT_COMMON_MATMUL_H

#include "saccade/Import/Common/Frontend.h"

namespace saccade::frontend {

/// `matmul` of Structured.h; refuses what cannot be multiplied.
mlir::FailureOr<mlir::Value> importMatmul(FrontendOp &op, mlir::Value lhs, mlir::Value rhs);

/// What is done to a product of matrices.
struct GemmParams {
  bool transA = false, transB = false; // the factor comes transposed
  double alpha = 1, beta = 1;                 // of the product and of the bias
  mlir::Value bias;                           // broadcast to the product, or null
};

/// alpha · lhs · rhs + beta · bias. `rhs` is a matrix, and so is `lhs` where it is turned; else it has any number of
/// dimensions in front of its last. The bias is added in the type of sums, and not read where beta is 0.
mlir::FailureOr<mlir::Value> importGemm(FrontendOp &op, mlir::Value lhs, mlir::Value rhs, const GemmParams &affine);
/// The same of batches of matrices, see `importMatmul`, none of them transposed.
mlir::FailureOr<mlir::Value> importBatchedGemm(FrontendOp &op, mlir::Value lhs, mlir::Value rhs, const GemmParams &affine);

/// A convolution of images [n,c,y,x] with filters [m,c,y,x] whose windows lie beside each other, as models of images
/// cut these into patches: a product of patches, as rows, and filters, plus a number of `bias` (or null) a filter.
mlir::FailureOr<mlir::Value> convolvePatches(FrontendOp &op, mlir::Value image, mlir::Value filters, mlir::Value bias);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_MATMUL_H
