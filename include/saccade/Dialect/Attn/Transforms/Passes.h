//===- Passes.h - Passes over whole attention graphs --------------*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_TRANSFORMS_PASSES_H
#define SACCADE_DIALECT_ATTN_TRANSFORMS_PASSES_H

#include "mlir/Pass/Pass.h"

namespace saccade::attn {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "saccade/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_TRANSFORMS_PASSES_H
