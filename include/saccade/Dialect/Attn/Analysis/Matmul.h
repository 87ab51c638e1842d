//===- Matmul.h - What is compiled as a matrix product -----*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_MATMUL_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_MATMUL_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"

namespace saccade {

/// Whether `op` computes C[m, n] += Σ_k A[m, k] · B[k, n] over floats and nothing else: its body yields the sum of the
/// output and the product of both inputs, in any order, with at most widening casts of the inputs; its maps only pick
/// and permute loops, of which there are at least one m, one n and one k. Other loops may stand around these.
bool isMatmul(mlir::linalg::LinalgOp op);
/// The loops of such a product by what they are; nothing for another op.
std::optional<mlir::linalg::ContractionDimensions> getMatmulDims(mlir::linalg::LinalgOp op);

/// The largest block of a matrix product that is worked on at once.
struct MatmulBlock {
  int64_t rows = 192, columns = 256, depth = 512;
};

/// The block that the schedule of `op` asks for; where it has none or leaves it open, the default.
MatmulBlock getMatmulBlock(mlir::linalg::LinalgOp op);

} // namespace saccade

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_MATMUL_H
