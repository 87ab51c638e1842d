//===- LowerProductsSM80.cpp - Matrix products of sm_80 -----------------------===//
//
// Products of 16-bit numbers for the matrix units. Stands before LowerLinalgSIMT, which takes all other ops.
//
//===----------------------------------------------------------------------===//
#include "UnitProduct.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Support/Kernels.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERPRODUCTSSM80
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

namespace {

struct LowerProductsSM80 : saccade::impl::LowerProductsSM80Base<LowerProductsSM80> {
  void runOnOperation() override {
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) { ops.push_back(op); });
    OpBuilder b(&getContext());
    for (linalg::LinalgOp op : ops) {
      b.setInsertionPoint(op);
      if (!lowerUnitProduct(b, op))
        continue;
      // Who reads the result waits for all of it.
      Emitter(b, op.getLoc(), b.getF32Type()).barrier();
      op->erase();
      if (!getOperation()->hasAttr(familyAttr))
        getOperation()->setAttr(familyAttr, b.getStringAttr("sm_80, product"));
    }
  }
};

} // namespace
