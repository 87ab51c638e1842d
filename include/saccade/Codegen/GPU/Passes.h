//===- Passes.h - The code generation stage for GPUs --------------*- C++ -*-===//
#ifndef SACCADE_CODEGEN_GPU_PASSES_H
#define SACCADE_CODEGEN_GPU_PASSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "saccade/Support/GPUTarget.h"

namespace saccade {

#define GEN_PASS_DECL
#include "saccade/Codegen/GPU/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "saccade/Codegen/GPU/Passes.h.inc"

/// Afterwards the program has a device module (`gpu.module`) of kernels in the LLVM and NVVM dialects, one for each task;
/// what is left of the entries on the host calls the runtime to start them. No attn, linalg or tensor is left on the
/// device.
void buildGPUCodegenPipeline(mlir::OpPassManager &pm, const GPUTarget &target);

} // namespace saccade

#endif // SACCADE_CODEGEN_GPU_PASSES_H
