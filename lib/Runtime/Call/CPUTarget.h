//===- CPUTarget.h - Detection of the CPU target ------------------*- C++ -*-===//
#ifndef SACCADE_LIB_RUNTIME_CALL_CPUTARGET_H
#define SACCADE_LIB_RUNTIME_CALL_CPUTARGET_H

#include "saccade/Runtime/Entry.h"

namespace saccade::runtime {

/// The most capable target that the processor and the operating system support; cached.
SaccadeCPUTarget hostCPUTarget();
/// The name of a target for --target, such as "v4-bf16".
const char *cpuTargetName(SaccadeCPUTarget target);

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CALL_CPUTARGET_H
