//===- Exp2.h - 2^x on vectors -----------------------------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_CPU_EXP2_H
#define SACCADE_LIB_CODEGEN_CPU_EXP2_H

#include "Emitter.h"

namespace saccade::cpu {

/// How near to 2^x the result is.
enum class Exp2Error {
  Unit, ///< below 1.5 units in the last place
  F16,  ///< below 2^-18: far below what rounding to f16 loses
  BF16  ///< below 2^-13: what is rounded to bf16 next loses 16 times as much there
};

/// 2^x for each element of `x` (vector<lanes x f32> or f64), exact at 0; −inf gives 0, NaN stays NaN; results below the
/// smallest normal number may become 0. With AVX-512 what is too large gives inf; elsewhere x must be below 127, as the
/// exponents of weights are, which are never far above 0.
mlir::Value emitExp2(Emitter &e, mlir::Value x, Exp2Error error = Exp2Error::Unit);

/// 1 / (1 + 2^x) for any x, to an absolute error of 2^-19: enough for scores whose weights are rounded to 16 bits.
mlir::Value emitApproxLogistic(Emitter &e, mlir::Value x);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_EXP2_H
