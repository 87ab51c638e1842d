//===- Remote.h - Calls in another process ------------------------*- C++ -*-===//
#ifndef SACCADE_TOOLS_RUN_REMOTE_H
#define SACCADE_TOOLS_RUN_REMOTE_H

#include "saccade/JIT/Executable.h"
#include "saccade/Support/GuardedMemory.h"
#include "saccade/Support/HostTensor.h"

namespace saccade::run {

/// How a call runs in another process.
struct Runner {
  std::string command;        ///< words separated by spaces: an emulator with its arguments, and saccade-call
  int32_t threads = 0;        ///< 0 for all processors
  std::optional<Guard> guard; ///< of the memory of tensors
};

/// Compiles `module` to a shared library for `options.target`, calls the entry by the command of `runner` and returns
/// the results of the program. The processor need not run code of this machine.
llvm::Expected<std::vector<HostTensor>> runRemote(mlir::ModuleOp module, const CompileOptions &options,
                                                  const Entry &entry, llvm::ArrayRef<HostTensor> arguments,
                                                  const Runner &runner);

} // namespace saccade::run

#endif // SACCADE_TOOLS_RUN_REMOTE_H
