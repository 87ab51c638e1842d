//===- SVE.h - Instructions of SVE --------------------------------*- C++ -*-===//
//
// Kernels have vectors of fixed length, for which LLVM allocates SVE registers of that length. The intrinsics of SVE
// take scalable vectors, whose length is not known before run time, but equal on the processors that run the code.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_SVE_H
#define SACCADE_LIB_CODEGEN_CPU_SVE_H

#include "Emitter.h"

namespace saccade::cpu {

/// An SVE instruction: calls `intrinsic` with vectors of a register, predicates and scalars. `result` is a vector of a
/// register, or scalable.
mlir::Value emitSVE(Emitter &e, llvm::StringRef intrinsic, mlir::VectorType result, mlir::ValueRange operands);

/// A register of `element` (scalable) with the bits of `vector`. LLVM 22 keeps no bf16 vector of fixed length in a
/// register of more than 128 bits.
mlir::Value emitScalable(Emitter &e, mlir::Value vector, mlir::Type element);
inline mlir::Value emitScalablePairs(Emitter &e, mlir::Value vector) {
  return emitScalable(e, vector, e.b.getBF16Type());
}

/// Rounds two registers of f32 to bf16: a register of the compute type with the elements of `first`, then those of
/// `second`.
mlir::Value emitRoundInSVE(Emitter &e, mlir::Value first, mlir::Value second);

/// The predicate of all lanes of the compute type.
mlir::Value emitAllLanes(Emitter &e);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_SVE_H
