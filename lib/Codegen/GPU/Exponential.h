//===- Exponential.h - Exponential and logarithm --------------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_EXPONENTIAL_H
#define SACCADE_LIB_CODEGEN_GPU_EXPONENTIAL_H

#include "Emitter.h"

namespace saccade::device {

/// 2^x within a few ulp; subnormal results are flushed to 0, 2^−∞ = 0.
mlir::Value exp2(Emitter &e, mlir::Value x);

/// log2(x) for x ≥ 0 that is not subnormal; log2(0) = −∞.
mlir::Value log2(Emitter &e, mlir::Value x);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_EXPONENTIAL_H
