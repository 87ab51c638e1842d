//===- BuildAttention.h - The attention that was recognised -------*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_RAISE_BUILDATTENTION_H
#define SACCADE_LIB_IMPORT_RAISE_BUILDATTENTION_H

#include "NameDims.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace saccade::raise {

/// What an attention is made of.
struct AttentionParts {
  Labelled query, key, value;
  std::unique_ptr<mlir::Block> score, mask, weight; ///< regions; null where there is none
  llvm::ArrayRef<mlir::Value> captures;             ///< of all regions
  double scale = 1;
};

/// Replaces `values`, the contraction with values, by attention, and gives the op. Null where batches and heads do not
/// lie behind each other in the result: nothing has changed then.
attn::AttentionOp replaceByAttention(mlir::linalg::LinalgOp values, const Graph &graph, const Loops &loops,
                                     const NamedLoops &names, AttentionParts &parts);

} // namespace saccade::raise

#endif // SACCADE_LIB_IMPORT_RAISE_BUILDATTENTION_H
