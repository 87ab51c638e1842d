//===- Pipeline.h - The compiler, from a graph to the LLVM dialect -*- C++ -*-===//
//
// The stages in their order. Each is built by its own library and ends in an invariant that a
// verifier pass checks.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_PIPELINE_PIPELINE_H
#define SACCADE_PIPELINE_PIPELINE_H

#include "saccade/Pipeline/CompileOptions.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"

namespace saccade {

/// The names of the stages, in their order.
llvm::SmallVector<llvm::StringRef> stageNames();

/// Adds the passes of every stage up to `options.stopAfter`, with the user's own passes between them. Fails with a
/// message through `emitError` where a stage or a textual pipeline is not known.
llvm::LogicalResult buildCompilePipeline(mlir::OpPassManager &pm, const CompileOptions &options,
                                         llvm::function_ref<void(const llvm::Twine &)> emitError);

/// The dialects a module may be written in and every one the pipeline makes, with their interface implementations.
void registerDialects(mlir::DialectRegistry &registry);

/// Our passes and pipelines, and the few upstream passes that are useful beside them, for textual pipelines.
void registerPasses();

} // namespace saccade

#endif // SACCADE_PIPELINE_PIPELINE_H
