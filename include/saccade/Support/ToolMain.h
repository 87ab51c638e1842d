//===- ToolMain.h - Common main function of the tools -------------*- C++ -*-===//
//
// Runs a tool on a large stack and turns faults into exit code 70 and a reproducer.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_TOOLMAIN_H
#define SACCADE_SUPPORT_TOOLMAIN_H

#include "saccade/Support/CommandLine.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

namespace saccade {

/// Runs `body` and returns its exit code. A fault or abort on any thread ends the process with ExitInternal, after
/// writing a reproducer (the command line, the input last given to `setReproducerInput` and the files given to
/// `addToReproducer`) and printing its path. A
/// write error of standard output returns ExitFile.
int runTool(llvm::ArrayRef<const char *> commandLine, llvm::function_ref<int()> body);

/// Makes a fault print LLVM's stack traces first: the functions, and the ops and passes in progress. For tools of
/// developers; called inside `runTool`.
void printStackOnFault();

/// Sets the input for the reproducer. The text must stay valid until the tool ends or sets another one.
void setReproducerInput(llvm::StringRef input);

/// Adds a file that the command line names, as comments after the input. Called before other threads run.
void addToReproducer(llvm::StringRef path, llvm::StringRef text);

/// Sets what the fault handler names: the pass that is running, and the plugin that it or the code that is running
/// belongs to; empty for none. Has no effect outside of `runTool`.
void setRunningPass(llvm::StringRef pass, llvm::StringRef plugin);

/// Prints `message` and ends the tool as a fault does; for violated invariants.
[[noreturn]] void reportInternalError(const llvm::Twine &message);

} // namespace saccade

#endif // SACCADE_SUPPORT_TOOLMAIN_H
