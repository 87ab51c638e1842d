//===- ConstantComputation.h - What an entry computes of constants alone -*- C++ -*-===//
#ifndef SACCADE_LIB_BUFFERIZE_CONSTANTCOMPUTATION_H
#define SACCADE_LIB_BUFFERIZE_CONSTANTCOMPUTATION_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace saccade {

/// The part of an entry that has the same outcome in all calls.
struct ConstantComputation {
  /// The parallel loops, launches and structured ops that do it, in the order of the program. They write to `buffers`
  /// only.
  llvm::SmallVector<mlir::Operation *> ops;
  /// What they write to, of static size. Nothing else writes there, and nobody reads before they are done.
  llvm::SmallVector<mlir::memref::AllocOp> buffers;
  /// Those of `buffers` that something else reads.
  llvm::SmallVector<mlir::memref::AllocOp> results;
};

/// On an allocation: it is filled in every call, though that may be from constants alone. A unit.
inline constexpr llvm::StringLiteral perCallAttr = "attn.per_call";

/// Whether what depends on `argument` alone can be computed once: a tensor marked `attn.constant` whose extents are
/// known, and not 0. Others are read only behind the checks of shapes, which belong to calls.
bool isConstantArgument(mlir::func::FuncOp entry, mlir::BlockArgument argument);

/// Finds it in a function on buffers: what depends on constant arguments and on numbers of the program. A pure function
/// of the IR.
ConstantComputation findConstantComputation(mlir::func::FuncOp entry);

/// What `op` needs: its operands, and what its regions use from outside.
llvm::SmallVector<mlir::Value> getUsedValues(mlir::Operation *op);

/// What `memory` is a view of.
mlir::Value getBaseMemory(mlir::Value memory);

} // namespace saccade

#endif // SACCADE_LIB_BUFFERIZE_CONSTANTCOMPUTATION_H
