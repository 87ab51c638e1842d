//===- ScalarRegionEmitter.h - Values of a region for one pair of positions -*- C++ -*-===//
//
// Code ahead of a call that computes what a region would compute for one batch, head, query and key.
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

/// The ops that `value` is computed by, each after those that use it.
void collectProducers(mlir::Value value, llvm::SetVector<mlir::Operation *> &ops);

/// Whether code ahead of a call may read the elements of a captured tensor: those of integers that the caller gives.
bool isReadableBeforeCall(mlir::Value tensor);

class ScalarRegionEmitter {
public:
  /// `values` gives the positions and the captures of all regions that are asked about. Lengths are null where they are not
  /// one number. `tables` takes the tensors that are read; without it none is.
  ScalarRegionEmitter(mlir::OpBuilder &b, mlir::Location loc, mlir::IRMapping values, mlir::Value queryLength,
             mlir::Value keyLength, llvm::SmallSetVector<mlir::Value, 4> *tables)
      : b(b), loc(loc), values(std::move(values)), queryLength(queryLength), keyLength(keyLength), tables(tables) {}

  /// `value` as code here; null where it depends on what is not known ahead or must not be computed for any number. A read
  /// outside of a tensor gives one of its elements: there must be one.
  mlir::Value emit(mlir::Value value);

  /// Whether (an i1) it makes a difference to `value` what `read` gives, as far as selects, and, or decide that; null where
  /// that is not known.
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
  llvm::DenseMap<mlir::Value, mlir::Value> known; ///< answers of `matters`, of one read
};

} // namespace saccade::attn

#endif // SACCADE_LIB_DIALECT_ATTN_TRANSFORMS_SCALARREGIONEMITTER_H
