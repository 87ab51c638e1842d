//===- TensorEmitter.h - Structured ops of gradients ---------------*- C++ -*-===//
#ifndef SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_TENSOREMITTER_H
#define SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_TENSOREMITTER_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace saccade::attn {

/// Emits ops on tensors. A scalar counts as a tensor of rank 0 where extents are asked for.
struct TensorEmitter {
  mlir::OpBuilder &b;
  mlir::Location loc;

  /// An operand of a structured op: a tensor or scalar, and its indexing map.
  struct Indexed {
    mlir::Value value;
    mlir::AffineMap map;
  };
  /// The body: from the elements of the inputs, and last that of the output, to the element of the result.
  using Body = llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::ValueRange)>;

  /// A tensor with the extents of `like` and elements of type `element`.
  mlir::Value empty(mlir::Value like, mlir::Type element);
  /// A tensor of zeros with the extents of `like` and elements of type `element`.
  mlir::Value zeros(mlir::Value like, mlir::Type element);
  mlir::Value zeros(llvm::ArrayRef<mlir::OpFoldResult> extents, mlir::RankedTensorType type) {
    return filled(extents, type, 0);
  }
  mlir::Value filled(llvm::ArrayRef<mlir::OpFoldResult> extents, mlir::RankedTensorType type, double element);
  /// A `linalg.generic` with one output. Loops that the output map does not name are reductions.
  mlir::Value generic(llvm::ArrayRef<Indexed> inputs, Indexed output, Body body);
  /// The same, from zeros, for an output with the extents of `like`. `map` is a projected permutation, also with
  /// constants 0 for dimensions of extent 1.
  mlir::Value accumulate(llvm::ArrayRef<Indexed> inputs, mlir::Value like, mlir::AffineMap map, mlir::Type element,
                         Body body);
  /// `body` for the elements of tensors of the shape of the first one.
  mlir::Value elementwise(mlir::ValueRange inputs, mlir::Type element, Body body);
  /// The sum of tensors of one type, and of scalars of rank 0.
  mlir::Value sum(mlir::ValueRange tensors);
  /// `tensor` with elements rounded or widened to `element`.
  mlir::Value withElement(mlir::Value tensor, mlir::Type element);
  /// The same for the elements of `like`, and with its static type.
  mlir::Value converted(mlir::Value tensor, mlir::Value like);

  static mlir::Value convertedScalar(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value, mlir::Type type);
};

/// The type of the gradient of `value`: its type, or a tensor of rank 0 for a scalar.
mlir::RankedTensorType getGradientType(mlir::Value value);

} // namespace saccade::attn

#endif // SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_TENSOREMITTER_H
