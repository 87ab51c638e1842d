//===- BuildAttention.h - Build the raised attention op ---------*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_RAISE_BUILDATTENTION_H
#define SACCADE_LIB_IMPORT_RAISE_BUILDATTENTION_H

#include "NameDims.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace saccade::raise {

/// The components of an attention.
struct AttentionParts {
  Labelled query, key, value;
  std::unique_ptr<mlir::Block> score, mask, weight; ///< regions; null if absent
  llvm::ArrayRef<mlir::Value> captures;             ///< of all regions
  double scale = 1;
};

/// Replaces the P·V contraction `values` by attention and returns the new op. Returns null without changes if batch and
/// head dimensions are not adjacent in the result.
attn::AttentionOp replaceByAttention(mlir::linalg::LinalgOp values, const Graph &graph, const Loops &loops,
                                     const NamedLoops &names, AttentionParts &parts);

} // namespace saccade::raise

#endif // SACCADE_LIB_IMPORT_RAISE_BUILDATTENTION_H
