//===- Emitter.h - Builder helpers of CPU kernels ----------------*- C++ -*-===//
//
// The lowerings build kernels op by op. These helpers shorten the calls of the builder.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_EMITTER_H
#define SACCADE_LIB_CODEGEN_CPU_EMITTER_H

#include "../Common/KernelEmitter.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "saccade/Support/CPUTarget.h"

namespace saccade::cpu {

/// Emits code for a CPU target.
struct Emitter : KernelEmitter {
  const CPUTarget &target;

  Emitter(mlir::OpBuilder &builder, mlir::Location loc, const CPUTarget &target, mlir::FloatType type)
      : KernelEmitter(builder, loc, type), target(target) {}

  unsigned lanes() const { return target.lanes(type.getIntOrFloatBitWidth()); }
  mlir::VectorType vectorType() const { return mlir::VectorType::get({lanes()}, type); }

  //===--- Indices ---===//
  using KernelEmitter::ceilDiv;
  /// ⌈x / y⌉ for x ≥ 0.
  Value ceilDiv(Value x, int64_t y) { return div(add(x, y - 1), y); }
  Value roundDown(Value x, int64_t y) { return mul(div(x, y), y); }
  Value roundUp(Value x, int64_t y) { return mul(ceilDiv(x, y), y); }

  //===--- Scalars and vectors ---===//
  Value splat(double value) { return KernelEmitter::splat(vectorType(), value); }
  Value broadcast(Value x) {
    auto vector = mlir::VectorType::get({lanes()}, x.getType());
    return mlir::vector::BroadcastOp::create(b, loc, vector, x);
  }
  /// x · y + z, fused if the target has FMA. Without FMA a fused op would become a library call.
  Value fma(Value x, Value y, Value z) {
    if (target.hasFMA)
      return mlir::vector::FMAOp::create(b, loc, x, y, z);
    return addf(mulf(x, y), z);
  }
  /// The maximum; y if either operand is NaN, like the x86 max instruction that this becomes.
  Value maxf(Value x, Value y) override {
    Value greater = mlir::arith::CmpFOp::create(b, loc, mlir::arith::CmpFPredicate::OGT, x, y);
    return mlir::arith::SelectOp::create(b, loc, greater, x, y);
  }
  /// `x` is a vector.
  Value exp2(Value x) override;
  Value log(Value x) override { return mlir::math::LogOp::create(b, loc, x); }

  //===--- Memory ---===//
  Value alloc(llvm::ArrayRef<int64_t> shape) {
    return mlir::memref::AllocOp::create(b, loc, mlir::MemRefType::get(shape, type), b.getI64IntegerAttr(64));
  }
  Value loadVector(Value memref, mlir::ValueRange at) {
    return mlir::vector::LoadOp::create(b, loc, vectorType(), memref, at);
  }
  void storeVector(Value vector, Value memref, mlir::ValueRange at) {
    mlir::vector::StoreOp::create(b, loc, vector, memref, at);
  }
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_EMITTER_H
