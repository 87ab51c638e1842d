//===- Arguments.h - From --arg to tensors ------------------------*- C++ -*-===//
#ifndef SACCADE_TOOLS_RUN_ARGUMENTS_H
#define SACCADE_TOOLS_RUN_ARGUMENTS_H

#include "saccade/JIT/Executable.h"
#include "saccade/Support/CommandLine.h"
#include "saccade/Support/HostTensor.h"

namespace saccade::run {

/// Makes the arguments of `entry` from the texts of --arg: FILE.npy[:TYPE], SHAPE:TYPE[:SEED] (SHAPE:TYPE:=VALUE for
/// one value everywhere), or a number for a scalar. Anything but ExitSuccess has been explained on stderr.
ExitCode makeArguments(const Entry &entry, llvm::ArrayRef<std::string> texts, std::vector<HostTensor> &into);

/// A tensor, or a scalar where `type` is one, as a program takes it.
Buffer toBuffer(const ValueType &type, const HostTensor &tensor);

} // namespace saccade::run

#endif // SACCADE_TOOLS_RUN_ARGUMENTS_H
