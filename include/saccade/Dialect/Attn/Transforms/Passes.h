//===- Passes.h - Passes over whole attention graphs --------------*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_TRANSFORMS_PASSES_H
#define SACCADE_DIALECT_ATTN_TRANSFORMS_PASSES_H

#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"

namespace saccade::attn {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "saccade/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace saccade::attn

namespace saccade {

struct TransformsOptions {
  bool forGPU = false; ///< the program will run on a GPU
  bool lint = false;       ///< warn of what is allowed but hardly meant
  bool remarks = false;    ///< say of each softmax that does not become attention why
};

/// Afterwards entries are free of calls, have their shape functions, and only hold ops that the compiler knows, with
/// attention raised and elementwise ops fused.
void buildTransformsPipeline(mlir::OpPassManager &pm, const TransformsOptions &options = {});

} // namespace saccade

#endif // SACCADE_DIALECT_ATTN_TRANSFORMS_PASSES_H
