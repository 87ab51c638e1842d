//===- Bufferize.h - From tensors to buffers and tasks ------------*- C++ -*-===//
//
// The stage after tiling. It takes functions on tensors whose parallel loops are `scf.forall` and
// leaves functions on buffers that launch tasks.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_BUFFERIZE_BUFFERIZE_H
#define SACCADE_BUFFERIZE_BUFFERIZE_H

#include "saccade/Support/CPUTarget.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"

namespace saccade {

/// Tells bufferization what `attn.accumulate`, `attn.merge` and `attn.finalize` read and write.
void registerBufferizableOpInterfaceExternalModels(mlir::DialectRegistry &registry);

/// Adds the passes of the stage. Afterwards (and verified): results are trailing memref arguments of the entries, every
/// parallel loop is a task of its own that is started by `attn.launch`, tensors are left only in the score and mask
/// regions of attn ops, nothing is allocated in a loop but the static scratch of a task, and what an entry allocates it
/// releases after the last use. Neither a result nor an argument is copied as a whole where its strides do not force
/// it. `forGPU`: nothing is laid out for a CPU's registers, and what is left outside of tasks becomes tasks too, for
/// the host has no access to the memory. `prepack`: what an entry computes of constant arguments alone becomes an entry of
/// its own, not for kernels.
void buildBufferizePipeline(mlir::OpPassManager &pm, const CPUTarget &target, bool forGPU = false,
                            bool prepack = false);

/// `@f` takes what the entry `@f__prepack` makes of its weights.
inline constexpr llvm::StringLiteral prepackSuffix = "__prepack";

/// On the function of such an entry: how much it prepacks, a string: "72 tensors, 40.5 MiB".
inline constexpr llvm::StringLiteral prepacksAttr = "attn.prepacks";

} // namespace saccade

#endif // SACCADE_BUFFERIZE_BUFFERIZE_H
