//===- ControlFlow.cpp - func.call, scf.for, scf.if ------------------------------===//
#include "Frame.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/SymbolTable.h"

using namespace mlir;
using namespace saccade::reference;

/// Copies `box` of `source` in frame `inner` to result number `result` of `op`.
static LogicalResult forward(Operation *op, Frame &frame, unsigned result, Frame &inner, Value source, const Box &box) {
  FailureOr<Cells *> from = inner.demand(source, box), to = frame.cells(op->getResult(result));
  if (failed(from) || failed(to))
    return failure();
  forEachRow(box, (*to)->getStrides(), [&](int64_t first, int64_t length) {
    std::copy_n((*from)->data() + first, length, (*to)->data() + first);
  });
  return success();
}

static LogicalResult forwardShape(Frame &inner, Value source, Shape &shape) {
  FailureOr<Cells *> from = inner.cells(source);
  if (failed(from))
    return failure();
  shape.assign((*from)->getShape().begin(), (*from)->getShape().end());
  return success();
}

//===----------------------------------------------------------------------===//
// func.call
//===----------------------------------------------------------------------===//

/// The frame of the callee, and the value returned as `result`.
static std::pair<Frame *, Value> enterCall(func::CallOp op, Frame &frame, unsigned result) {
  auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(op, op.getCalleeAttr());
  Frame &inner = frame.child(op, callee.getBody(), /*isNested=*/false);
  for (auto [operand, argument] : llvm::zip_equal(op.getOperands(), callee.getArguments()))
    inner.alias(argument, frame, operand);
  return {&inner, callee.getBody().front().getTerminator()->getOperand(result)};
}

static LogicalResult shapeOfCall(func::CallOp op, Frame &frame, unsigned result, Shape &shape) {
  auto [inner, returned] = enterCall(op, frame, result);
  return forwardShape(*inner, returned, shape);
}

static LogicalResult evaluateCall(func::CallOp op, Frame &frame, unsigned result, const Box &box) {
  auto [inner, returned] = enterCall(op, frame, result);
  return forward(op, frame, result, *inner, returned, box);
}

//===----------------------------------------------------------------------===//
// scf.if
//===----------------------------------------------------------------------===//

/// The frame of the taken branch, and the value yielded as `result`.
static FailureOr<std::pair<Frame *, Value>> takeBranch(scf::IfOp op, Frame &frame, unsigned result) {
  FailureOr<Scalar> condition = frame.scalar(op.getCondition());
  if (failed(condition))
    return failure();
  Region &taken = condition->integer ? op.getThenRegion() : op.getElseRegion();
  return std::pair(&frame.child(op, taken, /*isNested=*/true), taken.front().getTerminator()->getOperand(result));
}

static LogicalResult shapeOfIf(scf::IfOp op, Frame &frame, unsigned result, Shape &shape) {
  FailureOr<std::pair<Frame *, Value>> branch = takeBranch(op, frame, result);
  return success(succeeded(branch) && succeeded(forwardShape(*branch->first, branch->second, shape)));
}

static LogicalResult evaluateIf(scf::IfOp op, Frame &frame, unsigned result, const Box &box) {
  FailureOr<std::pair<Frame *, Value>> branch = takeBranch(op, frame, result);
  return success(succeeded(branch) && succeeded(forward(op, frame, result, *branch->first, branch->second, box)));
}

//===----------------------------------------------------------------------===//
// scf.for
//===----------------------------------------------------------------------===//

static LogicalResult shapeOfFor(scf::ForOp op, Frame &frame, unsigned result, Shape &shape) {
  return forwardShape(frame, op.getInitArgs()[result], shape);
}

/// Runs the whole loop, each iteration in a new frame, and computes all results.
static LogicalResult evaluateFor(scf::ForOp op, Frame &frame, unsigned, const Box &) {
  SmallVector<int64_t> bounds;
  if (failed(frame.indices({op.getLowerBound(), op.getUpperBound(), op.getStep()}, bounds)))
    return failure();
  if (bounds[2] <= 0)
    return op.emitOpError() << "has step " << bounds[2] << ", expected a positive value";
  SmallVector<std::shared_ptr<Cells>> carried;
  for (Value init : op.getInitArgs()) {
    FailureOr<std::shared_ptr<Cells>> cells = frame.take(init);
    if (failed(cells))
      return failure();
    carried.push_back(*cells);
  }
  Type inductionType = op.getInductionVar().getType();
  // Iterating over a trip count avoids overflow of the induction variable.
  uint64_t distance = bounds[0] < bounds[1] ? uint64_t(bounds[1]) - uint64_t(bounds[0]) : 0;
  uint64_t trips = llvm::divideCeil(distance, uint64_t(bounds[2]));
  for (uint64_t trip = 0; trip < trips; ++trip) {
    int64_t i = bounds[0] + int64_t(trip) * bounds[2];
    Frame iteration(op.getRegion(), frame, /*isNested=*/true);
    iteration.bind(op.getInductionVar(), Cells::ofScalar(inductionType, Scalar{.integer = i}));
    for (auto [argument, cells] : llvm::zip_equal(op.getRegionIterArgs(), carried))
      iteration.bind(argument, cells);
    SmallVector<std::shared_ptr<Cells>> next;
    for (auto [yielded, cells] : llvm::zip_equal(op.getYieldedValues(), carried)) {
      FailureOr<std::shared_ptr<Cells>> value = iteration.take(yielded);
      if (failed(value))
        return failure();
      if ((*value)->getShape() != cells->getShape())
        return op.emitOpError()
               << "carries a tensor whose shape changes, which the reference interpreter does not support";
      next.push_back(*value);
    }
    carried = std::move(next);
  }
  for (auto [result, cells] : llvm::zip_equal(op.getResults(), carried)) {
    FailureOr<Cells *> to = frame.cells(result);
    if (failed(to))
      return failure();
    std::copy_n(cells->data(), cells->size(), (*to)->data());
    (*to)->setKnown(Box::whole((*to)->getShape()));
  }
  return success();
}

void saccade::reference::addControlFlowSemantics(SemanticsTable &table) {
  table.add<func::CallOp>(shapeOfCall, evaluateCall);
  table.add<scf::IfOp>(shapeOfIf, evaluateIf);
  table.add<scf::ForOp>(shapeOfFor, evaluateFor);
}
