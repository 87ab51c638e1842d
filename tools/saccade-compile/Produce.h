//===- Produce.h - Output of saccade-compile ---------------------*- C++ -*-===//
#ifndef SACCADE_TOOLS_COMPILE_PRODUCE_H
#define SACCADE_TOOLS_COMPILE_PRODUCE_H

#include "Options.h"

namespace saccade {

/// Generates the output of `module`, a compiled program, in memory, so that a failure writes no file. Libraries are
/// made by `compileLibrary`. Sets `isRefused` after a diagnostic for the program. A cubin's resources are added to
/// `report`, unless it is null.
llvm::Error produce(mlir::ModuleOp module, const Options &options, Explanation *report,
                    llvm::SmallVectorImpl<char> &into, bool &isRefused);

/// Compiles a program for each target, in their order, and links the code of all targets into one library. Calls
/// `onCompiled` with the program compiled for each target, which may replace the `interface` and returns false after a
/// diagnostic. Sets `isRefused` after a diagnostic for the program. The library does not depend on the number of
/// threads.
llvm::Error compileLibrary(mlir::ModuleOp program, const Options &options, const LibraryInterface &interface,
                           llvm::SmallVectorImpl<char> &into,
                           llvm::function_ref<bool(mlir::ModuleOp compiled, const CompileOptions &)> onCompiled,
                           bool &isRefused);

/// The path of libdevice; empty if it is not found.
std::string libdevice(const Options &options);

} // namespace saccade

#endif // SACCADE_TOOLS_COMPILE_PRODUCE_H
