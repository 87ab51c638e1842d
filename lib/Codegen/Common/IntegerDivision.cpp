//===- IntegerDivision.cpp - Guarding integer divisors ------------------------===//
#include "IntegerDivision.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

bool saccade::isIntegerDivision(Operation *op) {
  return isa<arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp, arith::FloorDivSIOp, arith::CeilDivSIOp,
             arith::CeilDivUIOp>(op);
}

Value saccade::guardDivisor(OpBuilder &b, Location loc, Value divisor) {
  if (matchPattern(divisor, m_NonZero()))
    return divisor;
  Type type = divisor.getType();
  auto constant = [&](int64_t value) -> Value {
    Attribute attr = b.getIntegerAttr(getElementTypeOrSelf(type), value);
    if (auto vectorType = dyn_cast<VectorType>(type))
      attr = DenseElementsAttr::get(vectorType, attr);
    return arith::ConstantOp::create(b, loc, cast<TypedAttr>(attr));
  };
  Value isZero = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, divisor, constant(0));
  return arith::SelectOp::create(b, loc, isZero, constant(1), divisor);
}
