//===- Passes.h - The code generation stage for GPUs --------------*- C++ -*-===//
#ifndef SACCADE_CODEGEN_GPU_PASSES_H
#define SACCADE_CODEGEN_GPU_PASSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "saccade/Support/GPUTarget.h"
#include "saccade/Support/PipelineStep.h"

namespace saccade {

#define GEN_PASS_DECL
#include "saccade/Codegen/GPU/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "saccade/Codegen/GPU/Passes.h.inc"

/// Adds the passes of GPU code generation. They produce a device module (`gpu.module`) with one kernel per task in the
/// LLVM and NVVM dialects; the host entries call the runtime to launch them. No attn, linalg or tensor op remains in
/// the device module. Its steps are kernels and ptx.
void buildGPUCodegenPipeline(mlir::OpPassManager &pm, const GPUTarget &target, StepListener onStep = ignoreStep);

} // namespace saccade

#endif // SACCADE_CODEGEN_GPU_PASSES_H
