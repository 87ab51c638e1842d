//===- Guarded.h - Calls on guarded memory ------------------------*- C++ -*-===//
#ifndef SACCADE_TOOLS_RUN_GUARDED_H
#define SACCADE_TOOLS_RUN_GUARDED_H

#include "Report.h"
#include "saccade/Support/GuardedMemory.h"

namespace saccade::run {

/// Makes the call on copies of all tensors that border on a page without access. Inputs are read-only, and results,
/// temporaries and scratch memory begin as NaN. A wrong access ends the process with a message.
llvm::Error runGuarded(const Call &call, Guard guard, llvm::ArrayRef<HostTensor> inputs,
                       llvm::MutableArrayRef<HostTensor> results);

} // namespace saccade::run

#endif // SACCADE_TOOLS_RUN_GUARDED_H
