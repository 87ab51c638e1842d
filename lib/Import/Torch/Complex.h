//===- Complex.h - Complex tensors of PyTorch -------------------*- C++ -*-===//
//
// While ops are translated, a complex tensor is a cast of two real tensors, its real and its imaginary part. Operators
// that move elements are translated twice, once for each part. No op on complex elements is left in a program.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_IMPORT_TORCH_COMPLEX_H
#define SACCADE_LIB_IMPORT_TORCH_COMPLEX_H

#include "Torch.h"

namespace saccade::torch {

/// Whether the op has a complex operand, or makes complex elements by its argument `dtype`.
bool isOnComplex(FrontendOp &op);

/// Translates an op on complex tensors, whose translator of real ones is `translate`. Emits an error if it is not
/// supported.
LogicalResult translateComplex(FrontendOp &op, const frontend::Translator &translate, Values &results);

/// Erases the casts that nothing reads.
void eraseComplexCasts(mlir::func::FuncOp function);

} // namespace saccade::torch

#endif // SACCADE_LIB_IMPORT_TORCH_COMPLEX_H
