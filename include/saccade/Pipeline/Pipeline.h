//===- Pipeline.h - The compile pipeline --------------------------*- C++ -*-===//
//
// Builds the stages from import to the LLVM dialect, and registers dialects and passes.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_PIPELINE_PIPELINE_H
#define SACCADE_PIPELINE_PIPELINE_H

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"
#include "saccade/Pipeline/CompileOptions.h"

namespace saccade {

/// The names of the stages, in order.
llvm::SmallVector<llvm::StringRef> stageNames();

/// Adds the passes of every stage up to `options.stopAfter`, and the user's passes after their stages. Calls
/// `emitError` and fails if a stage or a textual pipeline is unknown.
llvm::LogicalResult buildCompilePipeline(mlir::OpPassManager &pm, const CompileOptions &options,
                                         llvm::function_ref<void(const llvm::Twine &)> emitError);

/// Registers the dialects of programs and of the pipeline, with their external interface implementations.
void registerDialects(mlir::DialectRegistry &registry);

/// Registers Saccade's passes and pipelines, and the upstream transform passes, for textual pipelines.
void registerPasses();

} // namespace saccade

#endif // SACCADE_PIPELINE_PIPELINE_H
