//===- Einsum.h - Einstein's sums ---------------------------------*- C++ -*-===//
#ifndef SACCADE_IMPORT_COMMON_EINSUM_H
#define SACCADE_IMPORT_COMMON_EINSUM_H

#include "saccade/Import/Common/Frontend.h"

namespace saccade::frontend {

/// The sum of products that an equation as NumPy's says ("bij,bjk->bik"): with an ellipsis, with a letter twice in a
/// term for its diagonal, and without an arrow, which stands for the letters that come once, in order. Dimensions of
/// one letter have the same extent, or 1, which stretches where it is static. Inputs are numbers of one type, those of
/// 16 bits summed in f32; each product is rounded to that type. Refuses equations that do not fit the inputs.
mlir::FailureOr<mlir::Value> einsum(FrontendOp &op, llvm::StringRef equation, llvm::ArrayRef<mlir::Value> inputs);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_EINSUM_H
