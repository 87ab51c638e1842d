//===- ElementOp.cpp - The body of a structured op at one position ------------===//
#include "ElementOp.h"
#include "mlir/Dialect/Affine/Utils.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

SmallVector<Value> device::evaluateMap(Emitter &e, AffineMap map, ArrayRef<Value> positions) {
  return llvm::map_to_vector(
      map.getResults(), [&](AffineExpr expr) { return affine::expandAffineExpr(e.b, e.loc, expr, positions, {}); });
}

SmallVector<Value> device::subscriptsOf(Emitter &e, linalg::LinalgOp op, OpOperand &operand,
                                        ArrayRef<Value> positions) {
  return evaluateMap(e, op.getMatchingIndexingMap(&operand), positions);
}

void device::cloneAt(Emitter &e, Operation &inner, IRMapping &values, ArrayRef<Value> positions) {
  if (auto index = dyn_cast<linalg::IndexOp>(inner))
    return values.map(index.getResult(), positions[index.getDim()]);
  e.b.clone(inner, values)->walk([&](linalg::IndexOp index) {
    index.getResult().replaceAllUsesWith(positions[index.getDim()]);
    index->erase();
  });
}
