//===- Sizes.cpp - PyTorch symbolic sizes ---------------------------------===//
//
// `torch.aten.sym_size` and integer arithmetic on its results: 0-D i64 tensors whose element is known as an extent.
//
//===----------------------------------------------------------------------===//
#include "Torch.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;

/// An extent as a 0-D tensor.
static Value fromExtent(ImplicitLocOpBuilder &b, OpFoldResult extent) {
  return frontend::reshape(b, frontend::fromExtents(b, {extent}, b.getI64Type()), {});
}

static LogicalResult translateSymSize(Arguments &a, Values &results) {
  FailureOr<TensorDim> selected = a.tensorAndDim();
  if (failed(selected))
    return failure();
  auto [tensor, dim] = *selected;
  results.push_back(fromExtent(a.op.builder(), frontend::extentsOf(a.op.builder(), tensor)[dim]));
  return success();
}

static LogicalResult translateSymNumel(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  results.push_back(fromExtent(b, frontend::multiplyExtents(b, frontend::extentsOf(b, *tensor))));
  return success();
}

using OnExtents = OpFoldResult (*)(ImplicitLocOpBuilder &b, OpFoldResult x, OpFoldResult y);

/// Arithmetic on two sizes, `self` and `other`.
template <OnExtents compute> static LogicalResult translateArithmetic(Arguments &a, Values &results) {
  FailureOr<Extents> x = a.requiredSizes("self"), y = a.requiredSizes("other");
  if (failed(x) || failed(y))
    return failure();
  if (x->size() != 1 || y->size() != 1)
    return a.op.error() << "expected two scalars";
  // Only constant divisors can be checked here.
  bool divides = a.op.getName() == "sym.floordiv" || a.op.getName() == "sym.mod";
  if (std::optional<int64_t> divisor = getConstantIntValue(y->front()); divides && divisor && *divisor <= 0)
    return a.op.error() << "the divisor is " << *divisor << ", expected at least 1";
  results.push_back(fromExtent(a.op.builder(), compute(a.op.builder(), x->front(), y->front())));
  return success();
}

template <Value (*compute)(OpBuilder &, Location, Value, Value)>
static OpFoldResult onValues(ImplicitLocOpBuilder &b, OpFoldResult x, OpFoldResult y) {
  Value lhs = getValueOrCreateConstantIndexOp(b, b.getLoc(), x);
  return getAsOpFoldResult(compute(b, b.getLoc(), lhs, getValueOrCreateConstantIndexOp(b, b.getLoc(), y)));
}
static Value remainder(OpBuilder &b, Location loc, Value x, Value y) { return frontend::mod(b, loc, x, y, false); }
static OpFoldResult multiply(ImplicitLocOpBuilder &b, OpFoldResult x, OpFoldResult y) {
  return frontend::multiplyExtents(b, {x, y});
}
static OpFoldResult negate(ImplicitLocOpBuilder &b, OpFoldResult x) {
  return frontend::subtractExtents(b, b.getIndexAttr(0), x);
}

static LogicalResult translateNegate(Arguments &a, Values &results) {
  FailureOr<Extents> x = a.requiredSizes("self");
  if (failed(x))
    return failure();
  if (x->size() != 1)
    return a.op.error() << "expected one scalar";
  results.push_back(fromExtent(a.op.builder(), negate(a.op.builder(), x->front())));
  return success();
}

void torch::addSizes(frontend::Frontend &frontend) {
  add(frontend, "aten.sym_numel", translateSymNumel);
  add(frontend, "aten.sym_size", translateSymSize);
  add(frontend, "sym.add", translateArithmetic<frontend::addExtents>);
  add(frontend, "sym.floordiv", translateArithmetic<frontend::divideExtents>);
  add(frontend, "sym.max", translateArithmetic<onValues<frontend::maximum>>);
  add(frontend, "sym.min", translateArithmetic<onValues<frontend::minimum>>);
  add(frontend, "sym.mod", translateArithmetic<onValues<remainder>>);
  add(frontend, "sym.mul", translateArithmetic<multiply>);
  add(frontend, "sym.neg", translateNegate);
  add(frontend, "sym.sub", translateArithmetic<frontend::subtractExtents>);
}
