//===- CPUTarget.h - Which CPU target this processor has ---------------*- C++ -*-===//
#ifndef SACCADE_LIB_RUNTIME_CALL_CPUTARGET_H
#define SACCADE_LIB_RUNTIME_CALL_CPUTARGET_H

#include "saccade/Runtime/Entry.h"

namespace saccade::runtime {

/// The best target that processor and system run; asked once.
SaccadeCPUTarget hostCPUTarget();
/// As --target says it: "v4-bf16".
const char *cpuTargetName(SaccadeCPUTarget target);

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CALL_CPUTARGET_H
