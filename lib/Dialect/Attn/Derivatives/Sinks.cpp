//===- Sinks.cpp - The part of a sink in derivatives of attention -------------===//
#include "Sinks.h"
#include "TensorEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace saccade::attn;

AffineMap saccade::attn::getDimMap(OpBuilder &b, ArrayRef<Dim> dims, ArrayRef<Dim> names) {
  auto loopOf = [&](Dim name) { return b.getAffineDimExpr(llvm::find(dims, name) - dims.begin()); };
  return AffineMap::get(dims.size(), 0, llvm::map_to_vector(names, loopOf), b.getContext());
}

AffineMap saccade::attn::getSinkMap(OpBuilder &b, AttentionOp op, ArrayRef<Dim> rows) {
  if (!isa<RankedTensorType>(op.getSink().getType()))
    return getDimMap(b, rows, {});
  if (llvm::is_contained(rows, Dim::Head))
    return getDimMap(b, rows, Dim::Head);
  // Without a dimension of heads there is one head.
  return AffineMap::get(rows.size(), 0, b.getAffineConstantExpr(0), b.getContext());
}

Value saccade::attn::emitSinkProduct(OpBuilder &b, Location loc, Value sink, Value lse, Value lseLow, Value number) {
  auto type = cast<FloatType>(lse.getType());
  Value wide = TensorEmitter::convertedScalar(b, loc, sink, type);
  Value difference = arith::SubFOp::create(b, loc, arith::SubFOp::create(b, loc, wide, lse), lseLow);
  Value product = arith::MulFOp::create(b, loc, math::ExpOp::create(b, loc, difference), number);
  // Rows from `q_len` on have no sink.
  Value infinity = arith::ConstantOp::create(
      b, loc, b.getFloatAttr(type, APFloat::getInf(type.getFloatSemantics(), /*Negative=*/true)));
  Value isEmpty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, lse, infinity);
  Value zero = arith::ConstantOp::create(b, loc, b.getFloatAttr(type, 0));
  return arith::SelectOp::create(b, loc, isEmpty, zero, product);
}
