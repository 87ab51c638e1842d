//===- InPlaceUpdates.h - Arguments that are updated in place -----*- C++ -*-===//
#ifndef SACCADE_LIB_BUFFERIZE_INPLACEUPDATES_H
#define SACCADE_LIB_BUFFERIZE_INPLACEUPDATES_H

#include "mlir/Dialect/Bufferization/Transforms/OneShotAnalysis.h"
#include "mlir/IR/BuiltinOps.h"

namespace saccade {

/// Makes bufferization place each result that updates an argument (`attn.updated_by`) in the memory of the argument: a
/// result that is computed elsewhere is copied there at the end. Reports an op that would copy the argument, because
/// the contents that it overwrites are read later.
mlir::LogicalResult prepareInPlaceUpdates(mlir::ModuleOp module,
                                          const mlir::bufferization::OneShotBufferizationOptions &options);

/// Drops these results after bufferization: they are the arguments.
mlir::LogicalResult finishInPlaceUpdates(mlir::ModuleOp module);

} // namespace saccade

#endif // SACCADE_LIB_BUFFERIZE_INPLACEUPDATES_H
