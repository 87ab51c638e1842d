//===- Passes.h - Passes over whole attention graphs --------------*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_TRANSFORMS_PASSES_H
#define SACCADE_DIALECT_ATTN_TRANSFORMS_PASSES_H

#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "saccade/Support/PipelineStep.h"

namespace saccade::attn {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "saccade/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace saccade::attn

namespace saccade {

struct TransformsOptions {
  bool forGPU = false;  ///< compile for a GPU
  bool lint = false;    ///< warn about likely mistakes
  bool remarks = false; ///< report why a softmax was not raised to attention
};

/// Verifies the input, inlines calls, raises attention, creates the shape functions of entries and fuses elementwise
/// ops. Its steps are inline, raise, derive, shapes and fuse.
void buildTransformsPipeline(mlir::OpPassManager &pm, const TransformsOptions &options = {},
                             StepListener onStep = ignoreStep);

/// The part of the transforms pipeline up to gradient functions, for programs whose entries must be known before they
/// are compiled.
void buildGradientFunctionsPipeline(mlir::OpPassManager &pm);

/// The part of the transforms pipeline up to raising, for a program whose intermediate values become results; or with
/// `fused` all of it but the shape functions, so that these values are those of fused ops.
void buildIntermediatesPipeline(mlir::OpPassManager &pm, bool fused = false);

} // namespace saccade

#endif // SACCADE_DIALECT_ATTN_TRANSFORMS_PASSES_H
