//===- Control.cpp - StableHLO control flow -------------------------------===//
//
// Programs have no data-dependent control flow. A while loop with a constant trip count, such as one over the layers of
// a model, is unrolled. A branch with a constant condition is taken; otherwise all branches are computed and the
// results selected.
//
//===----------------------------------------------------------------------===//
#include "StableHLO.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::stablehlo;

/// Limit on unrolling that bounds compile time.
static constexpr int64_t maxTripCount = 64;

/// Translates a region and verifies its results against `types`, which must be ranked tensors.
static LogicalResult runRegion(FrontendOp &op, Region &region, ValueRange arguments, TypeRange types, Values &results) {
  if (failed(op.inlineRegion(region, arguments, results)))
    return failure();
  if (results.size() != types.size())
    return op.error() << "a region yields " << results.size() << " results, expected " << types.size();
  for (auto [value, type] : llvm::zip(results, types)) {
    auto found = dyn_cast<RankedTensorType>(value.getType()), expected = dyn_cast<RankedTensorType>(type);
    if (!found || !expected || found.getElementType() != expected.getElementType() ||
        found.getRank() != expected.getRank())
      return op.error() << "a region yields " << value.getType() << ", expected " << type;
  }
  return success();
}

static LogicalResult translateWhile(FrontendOp &op, Values &results) {
  Operation *loop = op.getOperation();
  if (loop->getNumRegions() != 2 || op.operands().size() != loop->getNumResults())
    return op.error() << "expected a condition, a body and one result per operand";
  SmallVector<Value> state = op.operands();
  Type flag = RankedTensorType::get({}, op.builder().getI1Type());
  for (int64_t step = 0;; ++step) {
    SmallVector<Value> condition;
    if (failed(runRegion(op, loop->getRegion(0), state, flag, condition)))
      return failure();
    std::optional<SmallVector<int64_t>> continues = frontend::constantIntegers(condition.front());
    if (!continues)
      return op.error() << "the trip count must be constant: data-dependent loops are not supported";
    if (continues->front() == 0)
      break;
    if (step == maxTripCount)
      return op.error() << "the loop has more than " << maxTripCount << " iterations";
    SmallVector<Value> next;
    if (failed(runRegion(op, loop->getRegion(1), state, loop->getResultTypes(), next)))
      return failure();
    state = next;
  }
  results.append(state.begin(), state.end());
  return success();
}

/// stablehlo.if has a true and a false branch, stablehlo.case one per index; an out-of-range index selects the last.
static LogicalResult translateBranch(FrontendOp &op, Values &results) {
  ImplicitLocOpBuilder &b = op.builder();
  Operation *branch = op.getOperation();
  bool isIf = op.getName() == "if";
  int64_t count = branch->getNumRegions();
  if (op.operands().size() != 1 || count < 1 || (isIf && count != 2) || typeOf(op.operand(0)).getRank() != 0 ||
      (isIf ? !typeOf(op.operand(0)).getElementType().isInteger(1)
            : !isa<IntegerType>(typeOf(op.operand(0)).getElementType())))
    return op.error() << "expected one scalar condition or index, and its branches";
  if (std::optional<SmallVector<int64_t>> known = frontend::constantIntegers(op.operand(0))) {
    int64_t index = isIf ? known->front() == 0 : known->front();
    index = index < 0 || index >= count ? count - 1 : index;
    return runRegion(op, branch->getRegion(index), {}, branch->getResultTypes(), results);
  }
  if (failed(runRegion(op, branch->getRegion(count - 1), {}, branch->getResultTypes(), results)))
    return failure();
  for (int64_t i = count - 2; i >= 0; --i) {
    SmallVector<Value> other;
    if (failed(runRegion(op, branch->getRegion(i), {}, branch->getResultTypes(), other)))
      return failure();
    for (auto [result, value] : llvm::zip(results, other)) {
      Value inputs[] = {op.operand(0), value, result};
      if (failed(requireSameShape(op, inputs)))
        return failure();
      auto choose = [&](OpBuilder &nested, Location loc, ValueRange x) {
        Value isThis = x[0];
        if (!isIf) {
          Value own = frontend::makeNumber(nested, loc, x[0].getType(), i);
          isThis = frontend::compare(nested, loc, arith::CmpIPredicate::eq, x[0], own);
        }
        return frontend::select(nested, loc, isThis, x[1], x[2]);
      };
      result = frontend::elementwise(b, inputs, typeOf(value).getElementType(), choose);
    }
  }
  return success();
}

/// Shape assertions are dropped because the program verifies its shapes itself. Sharding annotations have no effect.
static LogicalResult translateCustomCall(FrontendOp &op, Values &results) {
  StringRef target = op.text("call_target_name", "");
  if (target == "shape_assertion")
    return success();
  if (target == "Sharding" && op.operands().size() == 1) {
    results.push_back(op.operand(0));
    return success();
  }
  return op.error() << "the custom call of '" << target << "' is not supported";
}

void stablehlo::addControl(frontend::Frontend &frontend) {
  frontend.translators["case"] = frontend.translators["if"] = translateBranch;
  frontend.translators["custom_call"] = translateCustomCall;
  frontend.translators["while"] = translateWhile;
}
