//===- Bufferize.h - From tensors to buffers and tasks ------------*- C++ -*-===//
//
// The stage after tiling. It converts functions on tensors with `scf.forall` loops to functions on buffers that launch
// tasks.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_BUFFERIZE_BUFFERIZE_H
#define SACCADE_BUFFERIZE_BUFFERIZE_H

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"
#include "saccade/Support/CPUTarget.h"
#include "saccade/Support/PipelineStep.h"

namespace saccade {

/// Implements BufferizableOpInterface for `attn.accumulate`, `attn.merge` and `attn.finalize`.
void registerBufferizableOpInterfaceExternalModels(mlir::DialectRegistry &registry);

/// Adds the passes of the stage. Afterwards (verified): results are trailing memref arguments of the entries, every
/// parallel loop is a task started by `attn.launch`, tensors remain only in the regions of attn ops, and the only
/// allocations in loops are the static scratch buffers of tasks. Entries free their buffers after the last use. Results
/// and arguments are copied as a whole only if their strides require it.
/// `forGPU`: no operand is packed for the CPU, and structured ops outside of tasks become tasks too, because the host
/// cannot access device memory. `prepack`: computations of constant arguments become an entry `@f__prepack` (CPU only).
/// Its steps are buffers and tasks.
void buildBufferizePipeline(mlir::OpPassManager &pm, const CPUTarget &target, bool forGPU = false, bool prepack = false,
                            StepListener onStep = ignoreStep);

/// Suffix of the entry that computes the prepacked inputs of an entry: `@f__prepack` for `@f`.
inline constexpr llvm::StringLiteral prepackSuffix = "__prepack";

/// String attribute of a prepack entry: the number and size of its results, such as "72 tensors, 40.5 MiB".
inline constexpr llvm::StringLiteral prepacksAttr = "attn.prepacks";

} // namespace saccade

#endif // SACCADE_BUFFERIZE_BUFFERIZE_H
