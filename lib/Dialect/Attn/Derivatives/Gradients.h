//===- Gradients.h - Gradients of the values of a function ---------*- C++ -*-===//
//
// The state of reverse mode over the ops of a function, and the rules of ops.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_GRADIENTS_H
#define SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_GRADIENTS_H

#include "Differentiated.h"

namespace saccade::attn {

class Gradients : public Differentiated {
public:
  using Differentiated::Differentiated;

  /// Records that `argument` holds the value of the op result `result`, so that it need not be computed again.
  void setSaved(mlir::Value result, mlir::Value argument) {
    saved[result] = argument;
    source[argument] = result;
  }
  /// The value to read in place of `value`.
  mlir::Value primal(mlir::Value value) const { return saved.lookup_or(value, value); }

  /// Whether a gradient of `value` is needed.
  bool isActive(mlir::Value value) const { return active.contains(source.lookup_or(value, value)); }
  void setActive(mlir::Value value) { active.insert(value); }

  /// The gradient of `value` so far, of type `getGradientType(value)`; null for 0.
  mlir::Value of(mlir::Value value);
  /// Adds to the gradient of an active value; ignored for others. The element type of `gradient` may be that of scores.
  void add(mlir::Value value, mlir::Value gradient);

private:
  llvm::DenseMap<mlir::Value, mlir::Value> saved, source;
  llvm::DenseSet<mlir::Value> active;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Value>> parts;
};

/// Adds the gradients of the operands of an op, given those of its results; at least one result has a gradient.
using GradientRule = mlir::LogicalResult (*)(mlir::Operation *op, Gradients &gradients);

/// The rule of `op`; null if there is none.
GradientRule findGradientRule(mlir::Operation *op);

// One rule for each family of ops.
mlir::LogicalResult differentiateAttention(mlir::Operation *op, Gradients &gradients);
mlir::LogicalResult differentiateLinear(mlir::Operation *op, Gradients &gradients);
mlir::LogicalResult differentiateStructured(mlir::Operation *op, Gradients &gradients);

} // namespace saccade::attn

#endif // SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_GRADIENTS_H
