//===- TableEmitter.h - Builder for tables of indices -------------*- C++ -*-===//
//
// Serial code before a parallel loop lists its work in 1-D tensors of indices.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_TABLEEMITTER_H
#define SACCADE_LIB_TILING_TABLEEMITTER_H

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Support/IndexEmitter.h"

namespace saccade {

/// Index arithmetic and 1-D tensors of integers.
struct TableEmitter : IndexEmitter {
  using IndexEmitter::IndexEmitter;

  /// An uninitialized tensor of `size` indices.
  Value table(Value size) {
    return mlir::tensor::EmptyOp::create(b, loc, llvm::ArrayRef<mlir::OpFoldResult>{mlir::getAsOpFoldResult(size)},
                                         b.getIndexType());
  }
  /// Element `i` of a tensor of integers, as an index.
  Value get(Value table, Value i) {
    Value number = mlir::tensor::ExtractOp::create(b, loc, table, i);
    return number.getType().isIndex() ? number
                                      : mlir::arith::IndexCastOp::create(b, loc, b.getIndexType(), number).getResult();
  }
  Value set(Value table, Value i, Value number) { return mlir::tensor::InsertOp::create(b, loc, number, table, i); }
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_TABLEEMITTER_H
