//===- Convolution.h - Convolutions with checked operands -------*- C++ -*-===//
//
// A convolution is a matmul of the windows of the image, as rows, with the filters (im2col).
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_CONVOLUTION_H
#define SACCADE_IMPORT_COMMON_CONVOLUTION_H

#include "saccade/Import/Common/Frontend.h"

namespace saccade::frontend {

/// Parameters of a convolution. The lists have one element per spatial dimension; empty ones mean the default.
struct ConvolutionParams {
  llvm::SmallVector<int64_t> strides;       // default 1
  llvm::SmallVector<int64_t> dilations;     // distance of the elements of a window; default 1
  llvm::SmallVector<int64_t> before, after; // zero padding of the image; default 0
  llvm::SmallVector<int64_t> extra;         // elements that a transposed convolution adds to its result; default 0
  int64_t groups = 1;                       // of channels that are convolved separately
  bool isTransposed = false;                // the gradient of a convolution by its image
};

/// Sets the padding such that the result has ceil(extent / stride) elements ("same"). If the sum is odd, the larger
/// half is before the image if `isLower` is set, else after it. Emits an error for a dynamic extent with a stride.
llvm::LogicalResult padToSameSize(FrontendOp &op, mlir::Value image, mlir::Value filters, ConvolutionParams &params,
                                  bool isLower);

/// The convolution of images [n, c, ...] with filters [m, c / groups, ...], plus `bias` [m] (may be null), for one to
/// three spatial dimensions. The filters of a transposed convolution are [c, m / groups, ...]. Channels and filters are
/// static. 16-bit floats are accumulated in f32.
mlir::FailureOr<mlir::Value> convolve(FrontendOp &op, mlir::Value image, mlir::Value filters, mlir::Value bias,
                                      ConvolutionParams params);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_CONVOLUTION_H
