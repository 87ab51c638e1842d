//===- LiveRanges.cpp - Values that take no registers across loops ------------===//
#include "LiveRanges.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

/// An index that is opaque to LLVM.
static Value hide(Emitter &e, Value index) {
  Value word = arith::IndexCastOp::create(e.b, e.loc, e.b.getI64Type(), index);
  return e.toIndex(e.optimizationBarrier(word));
}

namespace {

/// Clones the computation of values from an index, and from the indices that a kernel has as parameters if
/// `ofParameters`.
class Recomputation {
public:
  Recomputation(Emitter &e, Value index, bool ofParameters) : e(e), ofParameters(ofParameters) {
    copies.map(index, e.optimizationBarrier(index));
  }

  Value operator()(Value value) { return depends(value) ? clone(value) : value; }

private:
  /// Whether a value is computed from the index by ops without effects.
  bool depends(Value value) {
    if (copies.contains(value) || isParameter(value))
      return true;
    auto [known, isNew] = found.try_emplace(value, false);
    Operation *op = value.getDefiningOp();
    if (!isNew || !op || op->getNumRegions() || !isMemoryEffectFree(op))
      return known->second;
    bool result = llvm::any_of(op->getOperands(), [&](Value operand) { return depends(operand); });
    return found[value] = result;
  }

  Value clone(Value value) {
    if (Value known = copies.lookupOrNull(value))
      return known;
    if (isParameter(value)) {
      copies.map(value, hide(e, value));
      return copies.lookup(value);
    }
    Operation *op = value.getDefiningOp();
    for (Value operand : op->getOperands())
      if (depends(operand))
        clone(operand);
    e.b.clone(*op, copies);
    return copies.lookup(value);
  }

  bool isParameter(Value value) const {
    return ofParameters && isa<BlockArgument>(value) && value.getType().isIndex() &&
           isa<func::FuncOp>(value.getParentBlock()->getParentOp());
  }

  Emitter &e;
  bool ofParameters;
  IRMapping copies;
  llvm::DenseMap<Value, bool> found;
};

} // namespace

/// The number of the CTA, read in a block around `op`; null if there is none.
static Value findItem(Operation *op) {
  for (; op && op->getBlock(); op = op->getParentOp()) {
    auto items = op->getBlock()->getOps<NVVM::BlockIdXOp>();
    if (!items.empty())
      return *items.begin();
  }
  return {};
}

void device::recomputeOperands(Emitter &e, Operation *op, bool ofParameters) {
  Value item = findItem(op);
  if (!item)
    return;
  OpBuilder::InsertionGuard guard(e.b);
  e.b.setInsertionPoint(op);
  Recomputation recompute(e, item, ofParameters);
  for (OpOperand &operand : op->getOpOperands())
    operand.set(recompute(operand.get()));
}

void device::hideIndices(Emitter &e, Operation *loop) {
  SmallVector<OpOperand *> uses;
  loop->walk([&](Operation *op) {
    for (OpOperand &operand : op->getOpOperands())
      if (operand.get().getType().isIndex() && op != loop && !matchPattern(operand.get(), m_Constant()) &&
          !loop->isAncestor(operand.get().getParentBlock()->getParentOp()))
        uses.push_back(&operand);
  });
  OpBuilder::InsertionGuard guard(e.b);
  for (OpOperand *use : uses) {
    e.b.setInsertionPoint(use->getOwner());
    use->set(hide(e, use->get()));
  }
}
