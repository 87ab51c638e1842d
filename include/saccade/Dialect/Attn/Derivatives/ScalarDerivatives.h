//===- ScalarDerivatives.h - Reverse and forward mode of scalar code -*- C++ -*-===//
//
// Differentiates the straight-line scalar code of a block: a region of attention, or the body of an elementwise op.
//
// A derivative that a `select` discards is exactly 0, even if a partial derivative of the discarded value is NaN or
// infinite: conditions are carried along with derivatives, and decide between derivatives where these are added.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_DERIVATIVES_SCALARDERIVATIVES_H
#define SACCADE_DIALECT_ATTN_DERIVATIVES_SCALARDERIVATIVES_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include <utility>

namespace saccade::attn {

/// Copies the ops of `block`, without the terminator, to the insertion point. `values` maps the arguments of the block
/// to emitted values, and afterwards the results as well.
void cloneScalarCode(mlir::OpBuilder &b, mlir::Block &block, mlir::IRMapping &values);

/// The derivative of a loss with respect to an element of a tensor, or to a scalar.
struct ElementGradient {
  mlir::Value input;                         ///< the tensor or scalar, a value of the differentiated block
  llvm::SmallVector<mlir::Value, 4> indices; ///< emitted values; empty for a scalar
  mlir::Value amount;                        ///< emitted value
};

/// Emits the derivatives of a loss with respect to `inputs`, scalars and tensors that the block reads, given its
/// derivatives `seeds` with respect to float values of the block. `values` maps values of the block to emitted values.
/// Derivatives of f64 values are f64, all others are f32.
///
/// Returns, in the order of `inputs`, at most one derivative of each scalar, and one of each element of a tensor that
/// is read; elements with the same indices as values are read once. Inputs on which the seeded values do not depend are
/// missing. Fails with a diagnostic that names an op without a rule and the `place` of the block ("the score region").
mlir::FailureOr<llvm::SmallVector<ElementGradient>>
emitReverseMode(mlir::OpBuilder &b, llvm::StringRef place, mlir::Block &block, const mlir::IRMapping &values,
                llvm::ArrayRef<std::pair<mlir::Value, mlir::Value>> seeds, llvm::ArrayRef<mlir::Value> inputs);

/// Emits the tangents of the operands of the terminator; null where a tangent is 0. `tangentOf` gives the tangent of a
/// scalar from outside or a block argument, or of a `tensor.extract` op; null if it is 0. Types, `values`, `place` and
/// diagnostics are those of `emitReverseMode`.
mlir::FailureOr<llvm::SmallVector<mlir::Value>> emitForwardMode(mlir::OpBuilder &b, llvm::StringRef place,
                                                                mlir::Block &block, const mlir::IRMapping &values,
                                                                llvm::function_ref<mlir::Value(mlir::Value)> tangentOf);

/// Emits `derivative` times the derivative of `result` with respect to operand number `operand`, which has one
/// (`hasPartial`). Takes and returns types of derivatives. The operands and results are used as they are.
mlir::Value emitProduct(mlir::OpBuilder &b, mlir::Value derivative, mlir::OpResult result, unsigned operand);

/// Emits the tangent of `result` from those of the operands of its op, null for 0. Returns null for 0. Takes and
/// returns types of derivatives. The operands and results are used as they are.
mlir::Value emitTangent(mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> tangents, mlir::OpResult result);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_DERIVATIVES_SCALARDERIVATIVES_H
