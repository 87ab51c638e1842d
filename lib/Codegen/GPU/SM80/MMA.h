//===- MMA.h - Products of the tensor cores of sm_80 -------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_MMA_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_MMA_H

#include "../Emitter.h"

namespace saccade::device {

/// acc + left · right of 16 × 16 by 16 × 8 elements of type `element` (f16 or bf16): four words, two words, four f32. A
/// lane l holds of the result the rows l / 4 (acc[0], acc[1]) and l / 4 + 8 (acc[2], acc[3]), columns 2 · (l mod 4) and
/// the next (mma.sync.m16n8k16).
llvm::SmallVector<mlir::Value> multiply(Emitter &e, mlir::Type element, mlir::ValueRange left, mlir::ValueRange right,
                                        mlir::ValueRange acc);

/// Two numbers (f32) as a word of two elements, rounded to nearest: `low` in the lower half.
mlir::Value packWord(Emitter &e, mlir::Type element, mlir::Value low, mlir::Value high);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_MMA_H
