//===- Emitter.h - Short names for what kernels are made of ------*- C++ -*-===//
//
// Kernels are written with the builder, op by op. This keeps them as short as the algorithm.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_EMITTER_H
#define SACCADE_LIB_CODEGEN_CPU_EMITTER_H

#include "../Common/KernelEmitter.h"
#include "saccade/Support/CPUTarget.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <limits>

namespace saccade::cpu {

/// A builder at a location, for vectors of `type` (f32 or f64) on `target`. The arithmetic of indices folds constants.
struct Emitter : KernelEmitter {
  const CPUTarget &target;
  mlir::FloatType type;

  Emitter(mlir::OpBuilder &builder, mlir::Location loc, const CPUTarget &target, mlir::FloatType type)
      : KernelEmitter(builder, loc), target(target), type(type) {}

  unsigned lanes() const { return target.lanes(type.getIntOrFloatBitWidth()); }
  mlir::VectorType vectorType() const { return mlir::VectorType::get({lanes()}, type); }

  //===--- Indices ---===//
  /// ⌈x / y⌉ of an x that is not negative.
  Value ceilDiv(Value x, int64_t y) { return div(add(x, y - 1), y); }
  Value roundDown(Value x, int64_t y) { return mul(div(x, y), y); }
  Value roundUp(Value x, int64_t y) { return mul(ceilDiv(x, y), y); }

  //===--- Numbers and vectors ---===//
  Value scalar(double value) { return mlir::arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value)); }
  Value splat(double value) {
    auto attr = mlir::DenseElementsAttr::get(vectorType(), b.getFloatAttr(type, value));
    return mlir::arith::ConstantOp::create(b, loc, attr);
  }
  Value broadcast(Value x) {
    auto vector = mlir::VectorType::get({lanes()}, x.getType());
    return mlir::vector::BroadcastOp::create(b, loc, vector, x);
  }
  /// x · y + z, fused where the target has the instruction. A fused one on a target without it is a library call.
  Value fma(Value x, Value y, Value z) {
    if (target.hasFMA)
      return mlir::vector::FMAOp::create(b, loc, x, y, z);
    return addf(mulf(x, y), z);
  }
  /// The larger; y where either is NaN. This is what the max instruction does, so it is one instruction.
  Value maxf(Value x, Value y) {
    Value greater = mlir::arith::CmpFOp::create(b, loc, mlir::arith::CmpFPredicate::OGT, x, y);
    return mlir::arith::SelectOp::create(b, loc, greater, x, y);
  }
  /// x, but 0 in place of −inf (a maximum over no keys): what may be subtracted without forming −inf − (−inf).
  Value zeroIfMinusInfinity(Value x) {
    bool isVector = llvm::isa<mlir::VectorType>(x.getType());
    auto constant = [&](double value) { return isVector ? splat(value) : scalar(value); };
    Value isEmpty = mlir::arith::CmpFOp::create(b, loc, mlir::arith::CmpFPredicate::OEQ, x,
                                                constant(-std::numeric_limits<double>::infinity()));
    return select(isEmpty, constant(0.0), x);
  }

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

  //===--- Control ---===//
  /// The values of one of two branches, which give as many of the same types.
  using Branch = llvm::function_ref<llvm::SmallVector<Value>()>;
  llvm::SmallVector<Value> choose(Value condition, Branch then, Branch otherwise) {
    auto branch = [&](Branch body) {
      return [&, body](mlir::OpBuilder &nested, mlir::Location) {
        mlir::OpBuilder::InsertionGuard guard(b);
        b.setInsertionPoint(nested.getInsertionBlock(), nested.getInsertionPoint());
        llvm::SmallVector<Value> values = body();
        mlir::scf::YieldOp::create(b, loc, values);
      };
    };
    auto op = mlir::scf::IfOp::create(b, loc, condition, branch(then), branch(otherwise));
    return llvm::SmallVector<Value>(op.getResults());
  }
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_EMITTER_H
