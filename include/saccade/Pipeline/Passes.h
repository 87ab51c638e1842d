//===- Passes.h - Utility passes of the pipeline ------------------*- C++ -*-===//
#ifndef SACCADE_PIPELINE_PASSES_H
#define SACCADE_PIPELINE_PASSES_H

#include "mlir/Pass/Pass.h"

namespace saccade {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "saccade/Pipeline/Passes.h.inc"
} // namespace saccade

#endif // SACCADE_PIPELINE_PASSES_H
