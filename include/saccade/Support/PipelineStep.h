//===- PipelineStep.h - Steps inside of a stage -------------------*- C++ -*-===//
//
// A stage consists of steps, at whose borders users may insert passes.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_PIPELINESTEP_H
#define SACCADE_SUPPORT_PIPELINESTEP_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

namespace saccade {

/// Receives the name of each step before the builder of a stage adds the passes of the step.
using StepListener = llvm::function_ref<void(llvm::StringRef step)>;

/// Listens to no step.
inline void ignoreStep(llvm::StringRef) {}

} // namespace saccade

#endif // SACCADE_SUPPORT_PIPELINESTEP_H
