//===- Produce.h - Output of saccade-compile ---------------------*- C++ -*-===//
#ifndef SACCADE_TOOLS_COMPILE_PRODUCE_H
#define SACCADE_TOOLS_COMPILE_PRODUCE_H

#include "Options.h"

namespace saccade {

/// Generates the output of `module`, a compiled program, in memory, so that a failure writes no file. `entries` are the
/// functions of a shared library. Sets `isRefused` after a diagnostic for the program.
llvm::Error produce(mlir::ModuleOp module, const Options &options, llvm::ArrayRef<std::string> entries,
                    llvm::SmallVectorImpl<char> &into, bool &isRefused);

/// Compiles a program for each target, calls `explain` for each, and links the code of all targets into one library.
/// Sets `isRefused` after a diagnostic for the program.
llvm::Error compileLibrary(mlir::ModuleOp program, const Options &options, llvm::ArrayRef<std::string> entries,
                           llvm::SmallVectorImpl<char> &into,
                           llvm::function_ref<void(mlir::ModuleOp compiled, const CompileOptions &)> explain,
                           bool &isRefused);

} // namespace saccade

#endif // SACCADE_TOOLS_COMPILE_PRODUCE_H
