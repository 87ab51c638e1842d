//===- ToolMain.h - What every main does --------------------------*- C++ -*-===//
//
// Runs a tool so that it never ends by a signal: on a large stack, with faults turned into exit code 70 and a
// reproducer.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_TOOLMAIN_H
#define SACCADE_SUPPORT_TOOLMAIN_H

#include "saccade/Support/CommandLine.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

namespace saccade {

/// Runs `body` and returns its exit code. If it faults or aborts, on any thread, the process ends with ExitInternal
/// after saying where the reproducer is: the command line and the input last given to `setReproducerInput`. Standard
/// output that cannot be written is ExitFile.
int runTool(llvm::ArrayRef<const char *> commandLine, llvm::function_ref<int()> body);

/// What the reproducer will hold. The text must stay alive until the tool ends or gives another one.
void setReproducerInput(llvm::StringRef input);

/// Ends the tool like a fault does, after printing `message`: for broken invariants that are noticed.
[[noreturn]] void reportInternalError(const llvm::Twine &message);

} // namespace saccade

#endif // SACCADE_SUPPORT_TOOLMAIN_H
