//===- Tangents.h - Tangents of the values of a function -----------*- C++ -*-===//
//
// The state of forward mode over the ops of a function, and the rules of ops.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_TANGENTS_H
#define SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_TANGENTS_H

#include "Differentiated.h"

namespace saccade::attn {

class Tangents : public Differentiated {
public:
  using Differentiated::Differentiated;

  /// The tangent of `value`, of its type; null for 0.
  mlir::Value of(mlir::Value value) const { return tangents.lookup(value); }
  /// Sets the tangent of a value. A tensor is rounded or widened to the element type of the value.
  void set(mlir::Value value, mlir::Value tangent);

  /// Whether the results of the function depend on `value`.
  bool isNeeded(mlir::Value value) const { return needed.contains(value); }
  void setNeeded(mlir::Value value) { needed.insert(value); }

private:
  llvm::DenseMap<mlir::Value, mlir::Value> tangents;
  llvm::DenseSet<mlir::Value> needed;
};

/// Sets the tangents of the needed results of an op, given those of its operands; at least one operand has a tangent.
using TangentRule = mlir::LogicalResult (*)(mlir::Operation *op, Tangents &tangents);

/// The rule of `op`; null if there is none.
TangentRule findTangentRule(mlir::Operation *op);

// One rule for each family of ops.
mlir::LogicalResult pushAttention(mlir::Operation *op, Tangents &tangents);
mlir::LogicalResult pushLinear(mlir::Operation *op, Tangents &tangents);
mlir::LogicalResult pushStructured(mlir::Operation *op, Tangents &tangents);

} // namespace saccade::attn

#endif // SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_TANGENTS_H
