//===- Options.h - What saccade-compile is asked for -------------*- C++ -*-===//
#ifndef SACCADE_TOOLS_COMPILE_OPTIONS_H
#define SACCADE_TOOLS_COMPILE_OPTIONS_H

#include "saccade/Pipeline/Explain.h"
#include "saccade/Pipeline/Pipeline.h"
#include "saccade/Support/ToolMain.h"

namespace saccade {

inline constexpr llvm::StringLiteral tool = "saccade-compile";

enum class Emit { MLIR, LLVM, Assembly, Object, SharedLibrary, Header, PTX, Cubin };

struct Options {
  std::string input, output, header, assembler, libdevice, target = "host";
  std::optional<Emit> emit; ///< nothing where only the report of --explain is wanted
  bool explain = false;
  std::vector<GivenSize> sizes;
  std::vector<std::string> plugins;
  std::vector<const GPUTarget *> architectures; ///< of a program for GPUs
  CompileOptions compile;
};

/// Reads the command line; an exit code where nothing is left to do.
std::optional<ExitCode> parseOptions(llvm::ArrayRef<const char *> arguments, Options &options);

/// Where reports go: where the output itself does not.
llvm::raw_ostream &reportStream(const Options &options);

} // namespace saccade

#endif // SACCADE_TOOLS_COMPILE_OPTIONS_H
