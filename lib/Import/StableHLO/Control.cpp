//===- Control.cpp - StableHLO's loops and branches ---------------------------===//
//
// Programs have no loops and branches over tensors. A loop whose steps can be counted, as one over the layers of a
// model, is written out. Of branches the one is taken whose condition is known; where it is not, all are computed and
// their results chosen.
//
//===----------------------------------------------------------------------===//
#include "StableHLO.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::stablehlo;

/// More steps would make a program that takes too long to compile.
static constexpr int64_t maxSteps = 64;

/// Translates a region and holds its results against `types`, where these are tensors.
static LogicalResult runRegion(FrontendOp &op, Region &region, ValueRange arguments, TypeRange types, Values &results) {
  if (failed(op.inlineRegion(region, arguments, results)))
    return failure();
  if (results.size() != types.size())
    return op.error() << "a region gives " << results.size() << " results, expected " << types.size();
  for (auto [value, type] : llvm::zip(results, types)) {
    auto found = dyn_cast<RankedTensorType>(value.getType()), expected = dyn_cast<RankedTensorType>(type);
    if (!found || !expected || found.getElementType() != expected.getElementType() || found.getRank() != expected.getRank())
      return op.error() << "a region gives " << value.getType() << ", expected " << type;
  }
  return success();
}

static LogicalResult translateWhile(FrontendOp &op, Values &results) {
  Operation *loop = op.getOperation();
  if (loop->getNumRegions() != 2 || op.operands().size() != loop->getNumResults())
    return op.error() << "wanted a condition, a body and as many results as operands";
  SmallVector<Value> state = op.operands();
  Type flag = RankedTensorType::get({}, op.builder().getI1Type());
  for (int64_t step = 0;; ++step) {
    SmallVector<Value> condition;
    if (failed(runRegion(op, loop->getRegion(0), state, flag, condition)))
      return failure();
    std::optional<SmallVector<int64_t>> goesOn = frontend::constantIntegers(condition.front());
    if (!goesOn)
      return op.error() << "the number of steps must be known: loops over tensors are not supported";
    if (goesOn->front() == 0)
      break;
    if (step == maxSteps)
      return op.error() << "a loop has more than " << maxSteps << " steps";
    SmallVector<Value> next;
    if (failed(runRegion(op, loop->getRegion(1), state, loop->getResultTypes(), next)))
      return failure();
    state = next;
  }
  results.append(state.begin(), state.end());
  return success();
}

/// A branch for true and one for false, or one for each index; an index outside means the last.
static LogicalResult translateBranch(FrontendOp &op, Values &results) {
  ImplicitLocOpBuilder &b = op.builder();
  Operation *branch = op.getOperation();
  bool isIf = op.getName() == "if";
  int64_t count = branch->getNumRegions();
  if (op.operands().size() != 1 || count < 1 || (isIf && count != 2) || typeOf(op.operand(0)).getRank() != 0 ||
      (isIf ? !typeOf(op.operand(0)).getElementType().isInteger(1)
            : !isa<IntegerType>(typeOf(op.operand(0)).getElementType())))
    return op.error() << "wanted one scalar and its branches";
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

/// Assertions about shapes hold of the shapes that the program checks itself; what only says where a tensor lies says
/// nothing here.
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
