//===- FloatBits.h - Arithmetic on the bits of floats -------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_COMMON_FLOATBITS_H
#define SACCADE_LIB_CODEGEN_COMMON_FLOATBITS_H

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace saccade {

/// Arithmetic on integers of `width` bits, or on vectors of them with the extents of `shape`.
struct FloatBits {
  mlir::OpBuilder &b;
  mlir::Location loc;
  mlir::Type shape;
  unsigned width = 32;

  mlir::Type of(mlir::Type element) const {
    auto vector = mlir::dyn_cast<mlir::VectorType>(shape);
    return vector ? mlir::Type(vector.clone(element)) : element;
  }
  mlir::Type integer() const { return of(b.getIntegerType(width)); }
  mlir::Value constant(int64_t value) {
    auto bits =
        b.getIntegerAttr(b.getIntegerType(width), llvm::APInt(width, value, /*isSigned=*/true, /*implicitTrunc=*/true));
    auto vector = mlir::dyn_cast<mlir::VectorType>(integer());
    return mlir::arith::ConstantOp::create(b, loc,
                                           vector ? mlir::TypedAttr(mlir::DenseElementsAttr::get(vector, bits)) : bits);
  }
  mlir::Value cast(mlir::Value x, mlir::Type element) { return mlir::arith::BitcastOp::create(b, loc, of(element), x); }
  mlir::Value asFloat(mlir::Value x) { return cast(x, b.getF32Type()); }
  mlir::Value asInt(mlir::Value x) { return cast(x, b.getIntegerType(width)); }
  mlir::Value mask(mlir::Value x, int64_t bits) { return mlir::arith::AndIOp::create(b, loc, x, constant(bits)); }
  mlir::Value ori(mlir::Value x, mlir::Value y) { return mlir::arith::OrIOp::create(b, loc, x, y); }
  mlir::Value add(mlir::Value x, mlir::Value y) { return mlir::arith::AddIOp::create(b, loc, x, y); }
  mlir::Value shl(mlir::Value x, int64_t by) { return mlir::arith::ShLIOp::create(b, loc, x, constant(by)); }
  mlir::Value shr(mlir::Value x, int64_t by) { return mlir::arith::ShRUIOp::create(b, loc, x, constant(by)); }
  mlir::Value isEqual(mlir::Value x, int64_t to) {
    return mlir::arith::CmpIOp::create(b, loc, mlir::arith::CmpIPredicate::eq, x, constant(to));
  }
  mlir::Value isGreater(mlir::Value x, int64_t than) {
    return mlir::arith::CmpIOp::create(b, loc, mlir::arith::CmpIPredicate::sgt, x, constant(than));
  }
  mlir::Value select(mlir::Value condition, mlir::Value x, mlir::Value y) {
    return mlir::arith::SelectOp::create(b, loc, condition, x, y);
  }
};

} // namespace saccade

#endif // SACCADE_LIB_CODEGEN_COMMON_FLOATBITS_H
