//===- Sink.cpp - Where the state of a row with a sink begins ----------------===//
//
// A sink is a key without a value that every row has seen before the first one.
//
//===----------------------------------------------------------------------===//
#include "Sink.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <limits>
#include <numbers>

using namespace mlir;

saccade::SinkStart saccade::emitSinkStart(OpBuilder &b, Location loc, Value sink, Value head, FloatType type) {
  auto number = [&](double value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value));
  };
  if (isa<RankedTensorType>(sink.getType()))
    sink = tensor::ExtractOp::create(b, loc, sink, head);
  if (sink.getType() != type)
    sink = arith::ExtFOp::create(b, loc, type, sink);
  // A sink of −inf weighs nothing, also where there is no key.
  Value isNone = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, sink,
                                       number(-std::numeric_limits<double>::infinity()));
  return {arith::MulFOp::create(b, loc, sink, number(std::numbers::log2e)),
          arith::SelectOp::create(b, loc, isNone, number(0.0), number(1.0))};
}
