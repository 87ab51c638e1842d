//===- LowerMatmulSM80.cpp - Matmuls on the tensor cores of sm_80 -------------===//
//
// Lowers 16-bit matmuls to mma.sync. It runs before LowerLinalgSIMT, which handles all other structured ops.
//
//===----------------------------------------------------------------------===//
#include "TensorCoreMatmul.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Support/Kernels.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERMATMULSM80
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

namespace {

struct LowerMatmulSM80 : saccade::impl::LowerMatmulSM80Base<LowerMatmulSM80> {
  void runOnOperation() override {
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) { ops.push_back(op); });
    OpBuilder b(&getContext());
    for (linalg::LinalgOp op : ops) {
      b.setInsertionPoint(op);
      if (!lowerTensorCoreMatmul(b, op))
        continue;
      // Readers of the result wait for all threads.
      Emitter(b, op.getLoc(), b.getF32Type()).barrier();
      op->erase();
      if (!getOperation()->hasAttr(familyAttr))
        getOperation()->setAttr(familyAttr, b.getStringAttr("sm_80, matmul"));
    }
  }
};

} // namespace
