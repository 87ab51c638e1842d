//===- Options.h - Command line of saccade-compile ---------------*- C++ -*-===//
#ifndef SACCADE_TOOLS_COMPILE_OPTIONS_H
#define SACCADE_TOOLS_COMPILE_OPTIONS_H

#include "saccade/Pipeline/Explain.h"
#include "saccade/Pipeline/Pipeline.h"
#include "saccade/Pipeline/PipelineOptions.h"
#include "saccade/Support/ToolMain.h"
#include "saccade/Target/SharedLibrary.h"

namespace saccade {

inline constexpr llvm::StringLiteral tool = "saccade-compile";

enum class Emit { MLIR, LLVM, Assembly, Object, SharedLibrary, Header, PTX, Cubin };

struct Options {
  std::string input, output, header, assembler, libdevice, cacheDirectory, view, target = "host";
  std::optional<Emit> emit; ///< nullopt: print the report of --explain or write the graph of --view only
  std::optional<ExplainForm> explain;
  std::vector<GivenSize> sizes;
  PipelineOptions pipeline;
  std::vector<LibraryTarget> targets; ///< CPU targets in the order in which a call tries them, then GPUs
  CompileOptions compile;             ///< for the first target

  bool hasCPU() const { return !targets.front().gpu; }
  bool hasGPU() const { return targets.back().gpu; }
};

/// `options` for another target. The host code for a GPU runs on every CPU.
CompileOptions compileOptionsFor(const CompileOptions &options, const LibraryTarget &target);

/// Parses the command line. Returns the exit code if the tool should end.
std::optional<ExitCode> parseOptions(llvm::ArrayRef<const char *> arguments, Options &options);

/// The stream for reports: standard output, or standard error if the output is written to standard output.
llvm::raw_ostream &reportStream(const Options &options);

} // namespace saccade

#endif // SACCADE_TOOLS_COMPILE_OPTIONS_H
