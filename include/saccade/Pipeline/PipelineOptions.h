//===- PipelineOptions.h - Command-line options of the pipeline ---*- C++ -*-===//
//
// The options that all tools share: plugins, inserted passes, dumps, and MLIR's own.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_PIPELINE_PIPELINEOPTIONS_H
#define SACCADE_PIPELINE_PIPELINEOPTIONS_H

#include "mlir/Pass/PassManager.h"
#include "saccade/Pipeline/CompileOptions.h"
#include "saccade/Support/CommandLine.h"

namespace saccade {

struct PipelineOptions {
  std::vector<std::string> passPlugins, dialectPlugins;
  std::vector<std::string> mlir; ///< --mlir-timing and other options of MLIR's pass manager
};

/// Parses POINT:PASSES, of --insert-after and --insert-before; nullopt if a part is empty.
std::optional<Insertion> parseInsertion(llvm::StringRef text, bool isBefore);

/// Parses `[POINT:]FILE`, the value of --transform-script; without a point, the script runs before tiling.
Insertion parseScript(llvm::StringRef text);

/// Adds --insert-after, --insert-before, --dump-stages, --verify-each, --debug-only, the options for plugins, and those
/// of MLIR's pass manager.
void addPipelineOptions(CommandLine &line, llvm::StringRef tool, PipelineOptions &options, CompileOptions &compile);

/// To be called after the command line is parsed: loads the plugins, verifies the insertions, and sets MLIR's options.
/// Returns the exit code after an error.
std::optional<ExitCode> applyPipelineOptions(const CommandLine &line, llvm::StringRef tool,
                                             const PipelineOptions &options, CompileOptions &compile);

/// Applies the options of MLIR's pass manager, if the tool has set any. Fails after a diagnostic.
llvm::LogicalResult applyMLIROptions(mlir::PassManager &pm);

} // namespace saccade

#endif // SACCADE_PIPELINE_PIPELINEOPTIONS_H
