//===- GradientKernel.h - A gradient in registers of tensor cores -*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_GRADIENTKERNEL_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_GRADIENTKERNEL_H

#include "../Emitter.h"
#include "GradientStep.h"

namespace saccade::device {

/// Whether `step` has a size and operands for which `lowerGradient` emits code. Otherwise sets `obstacle` to the
/// reason: "head size 72 is not a multiple of 16".
bool fitsRegisters(const GradientStep &step, std::string *obstacle = nullptr);

/// Replaces the ops of `step` by mma.sync with products, weights and sums in registers. Each of the four warps has 16
/// rows. Columns are copied to shared memory in halves of a tile, one while the other is multiplied.
void lowerGradient(mlir::OpBuilder &b, GradientStep &step);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_GRADIENTKERNEL_H
