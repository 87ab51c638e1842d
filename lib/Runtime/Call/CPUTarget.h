//===- CPUTarget.h - Detection of the CPU target ------------------*- C++ -*-===//
#ifndef SACCADE_LIB_RUNTIME_CALL_CPUTARGET_H
#define SACCADE_LIB_RUNTIME_CALL_CPUTARGET_H

#include "saccade/Runtime/Entry.h"

namespace saccade::runtime {

/// The most capable target that the processor and the operating system support; cached.
SaccadeCPUTarget hostCPUTarget();
/// The most capable target that calls may run: the host's, or a lower limit.
SaccadeCPUTarget allowedCPUTarget();
/// Sets the limit to the target `name`, or removes it if `name` is null. Returns false if the name is unknown.
bool limitCPUTarget(const char *name);
/// The name of a target for --target, such as "v4-bf16".
const char *cpuTargetName(SaccadeCPUTarget target);

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CALL_CPUTARGET_H
