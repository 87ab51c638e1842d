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
  Value get(Value table, Value i) { return asIndex(mlir::tensor::ExtractOp::create(b, loc, table, i)); }
  /// Emits `body`, which fills the tables of the sizes `sizes` that it is given and returns them. `onDevice`: it is a
  /// task of its own, because only tasks access the memory of a device.
  using FillBody = llvm::function_ref<llvm::SmallVector<Value>(mlir::ValueRange tables)>;
  llvm::SmallVector<Value> fillTables(llvm::ArrayRef<Value> sizes, bool onDevice, FillBody body) {
    llvm::SmallVector<Value> tables = llvm::map_to_vector(sizes, [&](Value size) { return table(size); });
    if (!onDevice)
      return body(tables);
    llvm::SmallVector<mlir::OpFoldResult> one = {b.getIndexAttr(1)}, zero = {b.getIndexAttr(0)};
    auto task = mlir::scf::ForallOp::create(b, loc, one, tables, attn::taskMapping(b.getContext(), 1));
    task->setAttr(attn::tiledFromAttr, b.getStringAttr("tables"));
    mlir::OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(task.getBody());
    tables = body(task.getRegionIterArgs());
    b.setInsertionPointToStart(task.getTerminator().getBody());
    for (auto [filled, size, all] : llvm::zip_equal(tables, sizes, task.getRegionIterArgs()))
      mlir::tensor::ParallelInsertSliceOp::create(
          b, loc, filled, all, zero, llvm::ArrayRef<mlir::OpFoldResult>{mlir::getAsOpFoldResult(size)}, one);
    return llvm::SmallVector<Value>(task.getResults());
  }
  Value set(Value table, Value i, Value number) { return mlir::tensor::InsertOp::create(b, loc, number, table, i); }
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_TABLEEMITTER_H
