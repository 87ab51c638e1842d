//===- Pipeline.h - The compile pipeline --------------------------*- C++ -*-===//
//
// Builds the stages from import to the LLVM dialect, and registers dialects, passes and pipelines.
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

/// Where passes can be inserted: stages ("transforms") and their steps ("transforms.raise"), in order. Steps of code
/// generation for GPUs are among them.
llvm::SmallVector<std::string> insertionPoints();

/// Returns what is wrong with an insertion: its point is unknown, or its passes cannot be parsed; nullopt for nothing.
std::optional<std::string> findMistake(const Insertion &insertion);

/// Adds the passes of every stage from `options.start` to `options.stopAfter`, and the user's passes at their points.
/// Every stage ends with passes that verify its result; after passes of the user, facts that were derived from the
/// program are derived again. With `stopAfter` the result is marked with its stage. Calls `emitError` and fails if a
/// stage, a point or a textual pipeline is unknown, or if a point is not in these stages. Calls `onStageEnd` when the
/// passes of a stage are added.
llvm::LogicalResult buildCompilePipeline(
    mlir::OpPassManager &pm, const CompileOptions &options, llvm::function_ref<void(const llvm::Twine &)> emitError,
    llvm::function_ref<void(llvm::StringRef)> onStageEnd = [](llvm::StringRef) {});

/// Registers the dialects of programs and of the pipeline, with their external interface implementations.
void registerDialects(mlir::DialectRegistry &registry);

/// Registers Saccade's passes, the upstream transform passes, and the pipelines of the stages, for textual pipelines.
/// `insertions` are added to these pipelines where they have the point; it must outlive them. Null for none.
void registerPasses(const std::vector<Insertion> *insertions = nullptr);

} // namespace saccade

#endif // SACCADE_PIPELINE_PIPELINE_H
