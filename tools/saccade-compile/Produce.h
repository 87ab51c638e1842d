//===- Produce.h - Code of all kinds out of a program ------------*- C++ -*-===//
#ifndef SACCADE_TOOLS_COMPILE_PRODUCE_H
#define SACCADE_TOOLS_COMPILE_PRODUCE_H

#include "Options.h"

namespace saccade {

/// Makes the output of a compiled program in memory, so that nothing is written where anything fails. `entries` are the
/// functions of a shared library. Nothing where the program `isRefused`.
llvm::Error produce(mlir::ModuleOp compiled, const Options &options, llvm::ArrayRef<std::string> entries,
                    llvm::SmallVectorImpl<char> &into, bool &isRefused);

/// Compiles a program for each architecture, asks `explain` to tell of each, and links the host code of all with their
/// kernels; nothing where the program `isRefused`.
llvm::Error compileLibrary(mlir::ModuleOp program, const Options &options, llvm::ArrayRef<std::string> entries,
                           llvm::SmallVectorImpl<char> &into,
                           llvm::function_ref<void(mlir::ModuleOp compiled, const CompileOptions &)> explain,
                           bool &isRefused);

} // namespace saccade

#endif // SACCADE_TOOLS_COMPILE_PRODUCE_H
