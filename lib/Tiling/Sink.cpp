//===- Sink.cpp - The initial state of a row with a sink ----------------------===//
//
// A sink is an extra score without a value. It enters the softmax of every row before the first key.
//
//===----------------------------------------------------------------------===//
#include "Sink.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <limits>
#include <numbers>

using namespace mlir;

saccade::SinkStart saccade::emitSinkStart(OpBuilder &b, Location loc, Value sink, Value head, FloatType type) {
  auto number = [&](double value) -> Value { return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value)); };
  if (isa<RankedTensorType>(sink.getType()))
    sink = tensor::ExtractOp::create(b, loc, sink, head);
  if (sink.getType() != type)
    sink = arith::ExtFOp::create(b, loc, type, sink);
  // A sink of −∞ has weight 0, even if a row has no keys.
  Value isNone =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, sink, number(-std::numeric_limits<double>::infinity()));
  return {arith::MulFOp::create(b, loc, sink, number(std::numbers::log2e)),
          arith::SelectOp::create(b, loc, isNone, number(0.0), number(1.0))};
}
