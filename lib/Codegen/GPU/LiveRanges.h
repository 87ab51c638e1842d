//===- LiveRanges.h - Values that take no registers across loops --*- C++ -*-===//
//
// A loop over tiles needs most registers for accumulators. What is cheap to compute is computed again where it is used.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_LIVERANGES_H
#define SACCADE_LIB_CODEGEN_GPU_LIVERANGES_H

#include "Emitter.h"

namespace saccade::device {

/// Computes the operands of `op` at its place, as far as they depend on the number of the CTA that a block around it
/// reads, or on indices that are parameters of the kernel if `ofParameters`: across a loop over tiles they would take
/// registers.
void recomputeOperands(Emitter &e, mlir::Operation *op, bool ofParameters = false);

/// Makes indices from before `loop` opaque to LLVM at their uses in it. LLVM would otherwise compute what depends on
/// them before the loop, where it takes registers.
void hideIndices(Emitter &e, mlir::Operation *loop);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_LIVERANGES_H
