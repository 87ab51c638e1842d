//===- Exp2.h - 2^x on vectors -----------------------------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_CPU_EXP2_H
#define SACCADE_LIB_CODEGEN_CPU_EXP2_H

#include "Emitter.h"

namespace saccade::cpu {

/// Error bound of the exponential.
enum class Exp2Error {
  Unit, ///< below 1.5 ulp
  F16,  ///< relative error below 2^-18, much smaller than the rounding error of f16
  BF16  ///< relative error below 2^-13, 1/16 of the rounding error of bf16
};

/// Weights of f32 below 2^-100 of the largest weight of a row are 0. Their products with values could be subnormal, and
/// an instruction that reads or returns a subnormal number takes 150 to 300 cycles on Intel's cores.
inline constexpr double smallestWeight = -100;

/// 2^x for each element of `x` (vector<lanes x f32> or f64), exact at 0; 0 for x < `smallest`, or for f64 x < −1022.
/// `smallest` is at least −126, so that no result is subnormal. NaN stays NaN. With AVX-512, overflow gives inf. Other
/// targets require x < 127; exponents of weights are never far above 0.
mlir::Value emitExp2(Emitter &e, mlir::Value x, Exp2Error error = Exp2Error::Unit, double smallest = -126);

/// 1 / (1 + 2^x) for any x with an absolute error below 2^-19, sufficient for weights that are rounded to 16 bits.
mlir::Value emitApproxLogistic(Emitter &e, mlir::Value x);

/// 1 / (1 + 2^x) of f32 with a relative error below twice that of `error`, and 0 where it is below 2^-100. NaN stays
/// NaN. It has no division, which takes longer than the other instructions together.
mlir::Value emitLogistic(Emitter &e, mlir::Value x, Exp2Error error);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_EXP2_H
