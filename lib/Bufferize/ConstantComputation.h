//===- ConstantComputation.h - Computations of constants alone ----*- C++ -*-===//
#ifndef SACCADE_LIB_BUFFERIZE_CONSTANTCOMPUTATION_H
#define SACCADE_LIB_BUFFERIZE_CONSTANTCOMPUTATION_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace saccade {

/// The part of an entry that computes the same values in all calls.
struct ConstantComputation {
  /// Its parallel loops, launches and structured ops in program order. They write to `buffers` only.
  llvm::SmallVector<mlir::Operation *> ops;
  /// The buffers that `ops` write, of static size. No other op writes them, and no other op reads them before.
  llvm::SmallVector<mlir::memref::AllocOp> buffers;
  /// The elements of `buffers` that other ops read.
  llvm::SmallVector<mlir::memref::AllocOp> results;
};

/// Unit attribute of an allocation that is filled in every call, even if from constants alone.
inline constexpr llvm::StringLiteral perCallAttr = "attn.per_call";

/// Whether computations of `argument` alone can be hoisted: a tensor marked `attn.constant` with static non-zero
/// extents. Other arguments may be read only after the shape checks of a call.
bool isConstantArgument(mlir::func::FuncOp entry, mlir::BlockArgument argument);

/// Finds the computations of a function on buffers that depend on constant arguments and constants of the program only.
/// Does not modify the IR.
ConstantComputation findConstantComputation(mlir::func::FuncOp entry);

/// The operands of `op` and the values that its regions use from outside.
llvm::SmallVector<mlir::Value> getUsedValues(mlir::Operation *op);

} // namespace saccade

#endif // SACCADE_LIB_BUFFERIZE_CONSTANTCOMPUTATION_H
