//===- UpperBound.cpp - Constant bounds of tile sizes -------------------------===//
#include "UpperBound.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace saccade;

using Bound = std::optional<int64_t>;

/// The bound of a minimum, of which one operand must have a bound.
static Bound least(ArrayRef<Bound> bounds) {
  Bound result;
  for (Bound bound : bounds)
    if (bound)
      result = std::min(result.value_or(*bound), *bound);
  return result;
}

/// The bound of a maximum, of which all operands must have bounds.
static Bound greatest(Bound lhs, Bound rhs) { return lhs && rhs ? Bound(std::max(*lhs, *rhs)) : std::nullopt; }

/// The bound of a result of an affine map, if it is a constant or an operand.
static Bound boundOf(AffineExpr expr, unsigned numDims, ValueRange operands) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return findUpperBound(operands[dim.getPosition()]);
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return findUpperBound(operands[numDims + symbol.getPosition()]);
  return std::nullopt;
}

Bound saccade::findUpperBound(OpFoldResult size) {
  if (Bound constant = getConstantIntValue(size))
    return constant;
  Operation *op = cast<Value>(size).getDefiningOp();
  if (auto min = dyn_cast_if_present<affine::AffineMinOp>(op)) {
    auto bounds = llvm::map_to_vector(min.getMap().getResults(), [&](AffineExpr expr) {
      return boundOf(expr, min.getMap().getNumDims(), min.getOperands());
    });
    return least(bounds);
  }
  if (isa_and_present<arith::MinSIOp>(op))
    return least({findUpperBound(op->getOperand(0)), findUpperBound(op->getOperand(1))});
  if (isa_and_present<arith::MaxSIOp>(op))
    return greatest(findUpperBound(op->getOperand(0)), findUpperBound(op->getOperand(1)));
  if (isa_and_present<arith::SelectOp>(op))
    return greatest(findUpperBound(op->getOperand(1)), findUpperBound(op->getOperand(2)));
  return std::nullopt;
}
