//===- CPUTarget.h - Detection of the CPU target ------------------*- C++ -*-===//
#ifndef SACCADE_LIB_RUNTIME_CALL_CPUTARGET_H
#define SACCADE_LIB_RUNTIME_CALL_CPUTARGET_H

#include "saccade/Runtime/Entry.h"

namespace saccade::runtime {

/// The most capable target that the processor supports; cached. Code that uses tile registers also needs a permission.
SaccadeCPUTarget hostCPUTarget();
/// Whether the operating system permits tile registers. The first call asks for the permission, which is not done
/// before code needs it, because it makes small alternate signal stacks invalid. Cached.
bool mayUseTileRegisters();
/// The most capable target that calls may run: the host's, or a lower limit.
SaccadeCPUTarget allowedCPUTarget();
/// Sets the limit to the target `name`, or removes it if `name` is null. Returns false if the name is unknown.
bool limitCPUTarget(const char *name);
/// The name of a target for --target, such as "v4-bf16".
const char *cpuTargetName(SaccadeCPUTarget target);

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CALL_CPUTARGET_H
