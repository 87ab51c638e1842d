//===- ElementOp.h - The body of a structured op at one position --*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_ELEMENTOP_H
#define SACCADE_LIB_CODEGEN_GPU_ELEMENTOP_H

#include "Emitter.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/IRMapping.h"

namespace saccade::device {

/// The results of `map` at `positions` (index), one for each of its dimensions.
llvm::SmallVector<mlir::Value> evaluateMap(Emitter &e, mlir::AffineMap map, llvm::ArrayRef<mlir::Value> positions);

/// The subscripts (index) of an operand of `op` at `positions` (index) of its loops.
llvm::SmallVector<mlir::Value> subscriptsOf(Emitter &e, mlir::linalg::LinalgOp op, mlir::OpOperand &operand,
                                            llvm::ArrayRef<mlir::Value> positions);

/// Clones `inner`, an op of the body of a structured op, and adds its results to `values`. `linalg.index` becomes one
/// of the `positions` (index) of the loops.
void cloneAt(Emitter &e, mlir::Operation &inner, mlir::IRMapping &values, llvm::ArrayRef<mlir::Value> positions);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_ELEMENTOP_H
