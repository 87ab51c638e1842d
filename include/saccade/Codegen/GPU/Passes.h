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

/// Moves the body of one task into a kernel of the device module, as `attn-outline-kernels` does, and returns the
/// kernel. Fails with an error if the body is not a loop over the items of the task.
mlir::FailureOr<mlir::func::FuncOp> outlineKernel(mlir::func::FuncOp task);

/// Lower the attentions of one kernel that a family of kernels supports, as the passes of the same names do. The last
/// one adds a kernel beside the given one, which keeps its ops. `keys` are those of a step, 32 or 64, chosen by the
/// registers that a step takes if they are not given. They fail with an error if a family supports an
/// attention but cannot emit it.
mlir::LogicalResult lowerAttentionSIMT(mlir::func::FuncOp kernel);
mlir::LogicalResult lowerAttentionSM80(mlir::func::FuncOp kernel, std::optional<int64_t> keys = {});
mlir::LogicalResult lowerAttentionSM90(mlir::func::FuncOp kernel, const GPUTarget &target);

/// Adds the passes of GPU code generation. They produce a device module (`gpu.module`) with one kernel per task in the
/// LLVM and NVVM dialects; the host entries call the runtime to launch them. No attn, linalg or tensor op remains in
/// the device module. Its steps are kernels and ptx.
void buildGPUCodegenPipeline(mlir::OpPassManager &pm, const GPUTarget &target, StepListener onStep = ignoreStep);

} // namespace saccade

#endif // SACCADE_CODEGEN_GPU_PASSES_H
