//===- Passes.h - Passes of the bufferize stage -------------------*- C++ -*-===//
#ifndef SACCADE_BUFFERIZE_PASSES_H
#define SACCADE_BUFFERIZE_PASSES_H

#include "mlir/Pass/Pass.h"

namespace saccade {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "saccade/Bufferize/Passes.h.inc"
} // namespace saccade

#endif // SACCADE_BUFFERIZE_PASSES_H
