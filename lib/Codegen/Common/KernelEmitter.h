//===- KernelEmitter.h - Builder helpers of CPU and GPU kernels ---*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_COMMON_KERNELEMITTER_H
#define SACCADE_LIB_CODEGEN_COMMON_KERNELEMITTER_H

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "saccade/Support/IndexEmitter.h"

namespace saccade {

/// Emits index arithmetic, loops, float arithmetic on scalars or vectors, and memory accesses.
struct KernelEmitter : IndexEmitter {
  using IndexEmitter::IndexEmitter;

  Value addf(Value x, Value y) { return mlir::arith::AddFOp::create(b, loc, x, y); }
  Value subf(Value x, Value y) { return mlir::arith::SubFOp::create(b, loc, x, y); }
  Value mulf(Value x, Value y) { return mlir::arith::MulFOp::create(b, loc, x, y); }

  /// The extent of dimension `dim`, a constant if static.
  Value size(Value memref, unsigned dim) { return b.createOrFold<mlir::memref::DimOp>(loc, memref, index(dim)); }
  Value load(Value memref, mlir::ValueRange at) { return mlir::memref::LoadOp::create(b, loc, memref, at); }
  void store(Value value, Value memref, mlir::ValueRange at) {
    mlir::memref::StoreOp::create(b, loc, value, memref, at);
  }
};

} // namespace saccade

#endif // SACCADE_LIB_CODEGEN_COMMON_KERNELEMITTER_H
