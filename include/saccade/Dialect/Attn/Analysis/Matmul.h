//===- Matmul.h - Structured ops that are compiled as matmuls -----*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_MATMUL_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_MATMUL_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"

namespace saccade {

/// Whether `op` is a matmul C[m, n] += Σ_k A[m, k] · B[k, n] of floats, possibly batched. Its body adds the product of
/// the inputs to the output, with at most widening casts of the inputs. Its maps are projected permutations with at
/// least one loop each of m, n and k.
bool isMatmul(mlir::linalg::LinalgOp op);
/// The batch, m, n and k loops of a matmul; nullopt for another op.
std::optional<mlir::linalg::ContractionDimensions> getMatmulDims(mlir::linalg::LinalgOp op);

/// Whether the matmul `op` reads an attn.dequantize by `use` in the form that kernels fuse: the rows of the weights are
/// the columns of the result, and all of their columns are reduced.
bool readsDequantizedRows(mlir::linalg::LinalgOp op, mlir::OpOperand &use);

/// Unit attribute of a matmul of one tile: no dynamic extent exceeds its schedule, and the result is in the cache.
inline constexpr llvm::StringLiteral tileMatmulAttr = "attn.tile_matmul";

/// Unit attribute of the op that computes a tile of weights and score gradients in a gradient of attention.
inline constexpr llvm::StringLiteral gradientPairsAttr = "attn.gradient_pairs";

/// The block sizes of a matmul.
struct MatmulBlock {
  int64_t rows = 192, columns = 256, depth = 512;
};

/// The block sizes in the schedule of `op`, with defaults for missing ones.
MatmulBlock getMatmulBlock(mlir::linalg::LinalgOp op);

/// The op that fills the result of `op`, a matmul on buffers, with zeros if no op between them uses that buffer, or
/// null.
mlir::linalg::FillOp getZeroFill(mlir::linalg::LinalgOp op);

} // namespace saccade

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_MATMUL_H
