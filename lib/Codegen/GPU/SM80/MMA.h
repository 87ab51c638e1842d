//===- MMA.h - Wrapper of mma.sync --------------------------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_MMA_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_MMA_H

#include "../Emitter.h"

namespace saccade::device {

/// mma.sync.m16n8k16: acc + lhs · rhs, where lhs is 16 × 16 (four words), rhs 16 × 8 (two words) of `element` (f16 or
/// bf16) and acc 16 × 8 (four f32). Lane l holds rows l / 4 (acc[0], acc[1]) and l / 4 + 8 (acc[2], acc[3]) in columns
/// 2 · (l mod 4) and the next one.
llvm::SmallVector<mlir::Value> mmaSync(Emitter &e, mlir::Type element, mlir::ValueRange lhs, mlir::ValueRange rhs,
                                       mlir::ValueRange acc);

/// Packs two f32 values as a 32-bit word of two elements, rounded to nearest; `low` is in the lower half.
mlir::Value packWord(Emitter &e, mlir::Type element, mlir::Value low, mlir::Value high);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_MMA_H
