//===- Level.h - Which ISA level this processor has ---------------*- C++ -*-===//
#ifndef SACCADE_LIB_RUNTIME_CALL_LEVEL_H
#define SACCADE_LIB_RUNTIME_CALL_LEVEL_H

#include "saccade/Runtime/Entry.h"

namespace saccade::runtime {

/// The best level that processor and system run; asked once.
SaccadeLevel machineLevel();
/// As --target says it: "v4-bf16".
const char *nameOf(SaccadeLevel level);

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CALL_LEVEL_H
