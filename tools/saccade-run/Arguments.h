//===- Arguments.h - Tensors from --arg ---------------------------*- C++ -*-===//
#ifndef SACCADE_TOOLS_RUN_ARGUMENTS_H
#define SACCADE_TOOLS_RUN_ARGUMENTS_H

#include "saccade/JIT/Executable.h"
#include "saccade/Support/CommandLine.h"
#include "saccade/Support/HostTensor.h"

namespace saccade::run {

/// Creates the arguments of `entry` from the texts of --arg: FILE.npy[:TYPE], SHAPE:TYPE[:SEED] (random values),
/// SHAPE:TYPE:=VALUE (a constant), or a number for a scalar. Failures are reported on stderr.
ExitCode makeArguments(const Entry &entry, llvm::ArrayRef<std::string> texts, std::vector<HostTensor> &into);

/// The path in FILE.npy[:TYPE]; empty for other texts of --arg.
llvm::StringRef getArgumentPath(llvm::StringRef text);

/// The buffer of a tensor, or of a scalar if `type` is one.
Buffer toBuffer(const ValueType &type, const HostTensor &tensor);

} // namespace saccade::run

#endif // SACCADE_TOOLS_RUN_ARGUMENTS_H
