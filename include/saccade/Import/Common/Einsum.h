//===- Einsum.h - Einstein summation ----------------------------*- C++ -*-===//
#ifndef SACCADE_IMPORT_COMMON_EINSUM_H
#define SACCADE_IMPORT_COMMON_EINSUM_H

#include "saccade/Import/Common/Frontend.h"

namespace saccade::frontend {

/// Einstein summation with NumPy's equation syntax ("bij,bjk->bik"): supports an ellipsis, repeated letters in one term
/// (the diagonal), and implicit output (letters that occur once, sorted). Dimensions with the same letter must have
/// equal extents, or a static extent of 1, which broadcasts. Inputs have the same element type; 16-bit floats are
/// accumulated in f32, and each intermediate result is rounded to the element type. Emits an error if the equation does
/// not fit the inputs.
mlir::FailureOr<mlir::Value> einsum(FrontendOp &op, llvm::StringRef equation, llvm::ArrayRef<mlir::Value> inputs);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_EINSUM_H
