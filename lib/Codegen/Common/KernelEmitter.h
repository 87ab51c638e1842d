//===- KernelEmitter.h - Builder helpers of CPU and GPU kernels ---*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_COMMON_KERNELEMITTER_H
#define SACCADE_LIB_CODEGEN_COMMON_KERNELEMITTER_H

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "saccade/Support/IndexEmitter.h"
#include <limits>

namespace saccade {

/// Emits index arithmetic, loops, float arithmetic on scalars or vectors of the compute type (f32 or f64), and memory
/// accesses. Functions that depend on the target are virtual.
struct KernelEmitter : IndexEmitter {
  mlir::FloatType type;

  KernelEmitter(mlir::OpBuilder &builder, mlir::Location loc, mlir::FloatType type)
      : IndexEmitter(builder, loc), type(type) {}
  virtual ~KernelEmitter() = default;

  Value scalar(double value) { return mlir::arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value)); }
  Value splat(mlir::VectorType vector, double value) {
    return mlir::arith::ConstantOp::create(b, loc, mlir::DenseElementsAttr::get(vector, b.getFloatAttr(type, value)));
  }
  /// `value` as a constant of the type of `like`.
  Value floatLike(Value like, double value) {
    auto vector = llvm::dyn_cast<mlir::VectorType>(like.getType());
    return vector ? splat(vector, value) : scalar(value);
  }
  Value addf(Value x, Value y) { return mlir::arith::AddFOp::create(b, loc, x, y); }
  Value subf(Value x, Value y) { return mlir::arith::SubFOp::create(b, loc, x, y); }
  Value mulf(Value x, Value y) { return mlir::arith::MulFOp::create(b, loc, x, y); }

  /// The maximum of two numbers. Targets differ for NaN.
  virtual Value maxf(Value x, Value y) = 0;
  /// 2^x for x that is not far above 0, 2^−∞ = 0; subnormal results may become 0.
  virtual Value exp2(Value x) = 0;
  /// The natural logarithm of x ≥ 0 that is not subnormal; that of 0 is −∞.
  virtual Value log(Value x) = 0;
  /// x, or 0 if x is −∞ (the maximum over no keys), so that subtracting it never forms −∞ − (−∞).
  Value zeroIfMinusInfinity(Value x) {
    Value infinity = floatLike(x, -std::numeric_limits<double>::infinity());
    Value isEmpty = mlir::arith::CmpFOp::create(b, loc, mlir::arith::CmpFPredicate::OEQ, x, infinity);
    return select(isEmpty, floatLike(x, 0.0), x);
  }

  /// The extent of dimension `dim`, a constant if static.
  Value size(Value memref, unsigned dim) { return b.createOrFold<mlir::memref::DimOp>(loc, memref, index(dim)); }
  Value load(Value memref, mlir::ValueRange at) { return mlir::memref::LoadOp::create(b, loc, memref, at); }
  void store(Value value, Value memref, mlir::ValueRange at) {
    mlir::memref::StoreOp::create(b, loc, value, memref, at);
  }
};

} // namespace saccade

#endif // SACCADE_LIB_CODEGEN_COMMON_KERNELEMITTER_H
