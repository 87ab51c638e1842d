//===- ScalarRegionEmitter.h - Clone scalar code of a region ------*- C++ -*-===//
//
// Emits the values of a region for a batch, head, query and key into the shape function.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_DIALECT_ATTN_TRANSFORMS_SCALARREGIONEMITTER_H
#define SACCADE_LIB_DIALECT_ATTN_TRANSFORMS_SCALARREGIONEMITTER_H

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"

namespace saccade::attn {

/// Collects the ops that compute `value`, users first.
void collectProducers(mlir::Value value, llvm::SetVector<mlir::Operation *> &ops);

/// `tensor` before the casts to a more or less static type.
mlir::Value withoutCasts(mlir::Value tensor);

/// Whether the shape function may read the elements of a captured tensor: an argument of integers.
bool isReadableBeforeCall(mlir::Value tensor);

class ScalarRegionEmitter {
public:
  /// `values` maps the positions and captures of all regions. Lengths are null if they are not scalars. `tables`
  /// collects the tensors that are read; if it is null, reads are not emitted.
  ScalarRegionEmitter(mlir::OpBuilder &b, mlir::Location loc, mlir::IRMapping values, mlir::Value queryLength,
                      mlir::Value keyLength, llvm::SmallSetVector<mlir::Value, 4> *tables)
      : b(b), loc(loc), values(std::move(values)), queryLength(queryLength), keyLength(keyLength), tables(tables) {}

  /// Emits `value`; null if it depends on unknown values or is not speculatable. Reads are clamped to the tensor, which
  /// must not be empty.
  mlir::Value emit(mlir::Value value);

  /// An i1: whether `value` depends on the result of `read`, considering select, and, or; null if it is not known.
  mlir::Value affectsResult(mlir::Value value, mlir::Value read);

private:
  mlir::Value emitRead(mlir::tensor::ExtractOp read);
  mlir::Value truth(bool holds);
  mlir::Value both(mlir::Value x, mlir::Value y);
  mlir::Value either(mlir::Value x, mlir::Value y);
  mlir::Value negate(mlir::Value x);
  mlir::Value computeAffectsResult(mlir::Value value, mlir::Value read);

  mlir::OpBuilder &b;
  mlir::Location loc;
  mlir::IRMapping values;
  mlir::Value queryLength, keyLength;
  llvm::SmallSetVector<mlir::Value, 4> *tables;
  llvm::DenseMap<mlir::Value, mlir::Value> known; ///< cached results of `affectsResult`
};

} // namespace saccade::attn

#endif // SACCADE_LIB_DIALECT_ATTN_TRANSFORMS_SCALARREGIONEMITTER_H
