//===- Differentiated.h - A function that is differentiated -------*- C++ -*-===//
#ifndef SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_DIFFERENTIATED_H
#define SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_DIFFERENTIATED_H

#include "TensorEmitter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::attn {

/// What both modes know of the function.
struct Differentiated {
  Differentiated(mlir::OpBuilder &b, llvm::StringRef function) : b(b), function(function) {}

  mlir::OpBuilder &b;
  /// The name of the differentiated function, for diagnostics.
  llvm::StringRef function;

  /// Reports that `op` cannot be differentiated.
  mlir::InFlightDiagnostic emitError(mlir::Operation *op) const {
    return mlir::emitError(op->getLoc()) << "'" << function << "' cannot be differentiated: ";
  }
};

/// Whether the elements of `value` have derivatives. Those of 8 bits are quantized and have none, as integers.
inline bool isFloat(mlir::Value value) {
  auto type = mlir::dyn_cast<mlir::FloatType>(mlir::getElementTypeOrSelf(value));
  return type && type.getWidth() > 8;
}

/// The operands of `op`, and the values from outside that its regions use.
llvm::SmallVector<mlir::Value> getUsedValues(mlir::Operation *op);

/// Adds the log-sum-exp and its low part to the results of an attention unless they are. Returns the op, which may be
/// another one.
AttentionOp addLse(AttentionOp op);

/// Fails with a diagnostic if `function` has not exactly one block.
mlir::LogicalResult checkBlocks(mlir::func::FuncOp function);

/// Sets the type of `function` to its arguments and what it returns. Names its results, whose other attributes are
/// removed, and erases ops without uses.
void finishFunction(mlir::func::FuncOp function, llvm::ArrayRef<std::string> resultNames);

} // namespace saccade::attn

#endif // SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_DIFFERENTIATED_H
